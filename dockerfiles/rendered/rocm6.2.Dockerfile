# Rendered from dockerfiles/rocm.j2 and images/catalog.toml by `invoke render`. Do not edit.
# `invoke build --variant rocm6.2` stages its context: steps/, apt.txt, lock.txt, verl.txt, wheelhouse/,
# debs/, git/, toolkit/, with --verl also verl/.
ARG BASE=docker.io/rocm/vllm:rocm6.2_mi300_ubuntu20.04_py3.9_vllm_0.6.4@sha256:ccbb74cc9e7adecb8f7bdab9555f7ac6fc73adb580836c2a35ca96ff471890d8

# vllm 0.6.3 replaces the base's: verl 0.3.0.post1 to 0.4.1 raise on vLLM 0.6.4. The commit's hash is its checksum.
FROM ${BASE} AS vllm
# hadolint ignore=DL3002
USER 0
WORKDIR /src/vllm
RUN --mount=type=secret,id=ca --mount=type=secret,id=git --mount=type=bind,source=git,target=/git \
    git init --quiet . \
 && git -c include.path=/run/secrets/git fetch --quiet --depth 1 https://github.com/vllm-project/vllm.git fd47e57f4b0d5f7920903490bce13bc9e49d8dba \
 && git checkout --quiet FETCH_HEAD
RUN --mount=type=bind,source=steps,target=/steps python3 /steps/vllm_import.py .
RUN --mount=type=cache,target=/root/.cache/ccache \
    SOURCE_DATE_EPOCH=315532800 \
    SETUPTOOLS_SCM_PRETEND_VERSION="0.6.3" \
    VLLM_TARGET_DEVICE="rocm" \
    PYTORCH_ROCM_ARCH="gfx90a;gfx942" \
    MAX_JOBS="$(nproc)" python3 setup.py bdist_wheel --dist-dir /wheels

FROM ${BASE}

# hadolint ignore=DL3002
USER 0
# A checkout in the base's own folder, as AMD's verl in /app, would be first on the path of `python3 -m`.
WORKDIR /
ENV ROCM_PATH="/opt/rocm"
RUN --mount=type=secret,id=ca --mount=type=secret,id=apt --mount=type=secret,id=sources \
    --mount=type=bind,source=debs,target=/debs \
    --mount=type=bind,source=steps/apt.sh,target=/apt.sh --mount=type=bind,source=apt.txt,target=/apt.txt \
    APT_CONFIG=/run/secrets/apt DEBIAN_FRONTEND=noninteractive APT_MIRROR="http://archive.ubuntu.com/ubuntu" APT_SUITES="focal main universe;focal-updates main universe" SOURCE_DATE_EPOCH=315532800 \
    sh /apt.sh /apt.txt tini

RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,from=vllm,source=/wheels,target=/wheels/vllm \
    --mount=type=bind,source=steps,target=/steps --mount=type=bind,source=lock.txt,target=/lock.txt \
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=315532800 \
 && python3 /steps/guard.py record --lock /lock.txt \
        --protect "aiter amdsmi flash-attn pytorch-triton-rocm torch torchaudio torchvision triton xformers" \
        --has "torch==2.5.0 vllm==0.6.4" \
        --wanted "debugpy==1.8.16 tensordict==0.6.2 cachetools==5.5.2 ray==2.44.1 lm-format-enforcer==0.10.6" \
 && unset PIP_CONSTRAINT \
 && python3 -m pip install --no-deps --no-index /wheels/*/*.whl \
 && python3 /steps/guard.py install --lock /lock.txt \
 && printf '%s\n' /opt/verljob/python /opt/verl > "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/verljob.pth" \
 && python3 /steps/compile.py --installed /opt/verljob/guard/requirements.txt \
 && python3 /steps/guard.py verify --pins "debugpy==1.8.16 tensordict==0.6.2 cachetools==5.5.2 ray==2.44.1 lm-format-enforcer==0.10.6 vllm==0.6.3" --tolerate "tensordict:torch"

RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=steps,target=/steps \
    --mount=type=bind,source=lock.txt,target=/lock.txt --mount=type=bind,source=verl.txt,target=/verl.txt \
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=315532800 \
 && python3 /steps/guard.py install --lock /lock.txt /verl.txt --wanted "verl==0.4.0" \
 && python3 /steps/compile.py --installed /opt/verljob/guard/requirements.txt \
 && python3 /steps/guard.py verify --imports "torch ray verl" --pins "verl==0.4.0" \
        --training "verl.trainer.main_ppo verl.workers.fsdp_workers verl.workers.actor verl.workers.critic verl.workers.rollout.vllm_rollout verl.workers.sharding_manager.fsdp_vllm" --rocm --vllm-mode "customized" \
        --tolerate "tensordict:torch"

# Code compiled at run time (aiter, extensions of torch) targets these architectures.
ENV PYTORCH_ROCM_ARCH="gfx90a;gfx942" \
    RAY_USAGE_STATS_ENABLED=0 \
    RAY_ENABLE_UV_RUN_RUNTIME_ENV=0 \
    PIP_CONSTRAINT=/opt/verljob/guard/protected.txt
LABEL org.opencontainers.image.title="verl.rocm" \
      org.opencontainers.image.description="verl 0.4.0 for rocm: AMD Instinct MI200 and MI300, ROCm 6.2" \
      org.opencontainers.image.version="0.4.0-rocm6.2" \
      org.opencontainers.image.ref.name="0.4.0-rocm6.2" \
      org.opencontainers.image.revision="v0.4.0" \
      org.opencontainers.image.source="https://github.com/verl-project/verl" \
      org.opencontainers.image.url="https://github.com/verl-project/verl" \
      org.opencontainers.image.documentation="https://verl.readthedocs.io" \
      org.opencontainers.image.authors="verl on Slurm" \
      org.opencontainers.image.vendor="verl on Slurm" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="docker.io/rocm/vllm:rocm6.2_mi300_ubuntu20.04_py3.9_vllm_0.6.4" \
      verljob.platform="rocm" \
      verljob.variant="rocm6.2" \
      verljob.rollout="vllm" \
      verljob.machine="x86_64" \
      verljob.gpus="gfx90a gfx942" \
      verljob.state="reasoned: AMD publishes vLLM 0.6.3 built on this base with verl 0.3.0.post0; verl 0.4.0 uses the same code for that vLLM, and its trainer, actor and critic run under Python 3.9 without a GPU (docs/images.md)" \
      verljob.pin.cachetools="5.5.2" \
      verljob.pin.debugpy="1.8.16" \
      verljob.pin.lm-format-enforcer="0.10.6" \
      verljob.pin.python="3.9" \
      verljob.pin.ray="2.44.1" \
      verljob.pin.tensordict="0.6.2" \
      verljob.pin.torch="2.5.0" \
      verljob.pin.verl="0.4.0" \
      verljob.pin.vllm="0.6.3" \
      verljob.template="26a3cc76fe5a"

# docker leaves the empty mount points of RUN --mount, buildah and podman do not: removed, all build the same image.
RUN for path in /steps /debs /wheelhouse /wheels/vllm /wheels /root/.cache/pip /root/.cache; do \
        [ ! -d "$path" ] || rmdir --ignore-fail-on-non-empty "$path"; \
    done \
 && for path in /apt.sh /apt.txt /lock.txt /verl.txt; do \
        [ -s "$path" ] || rm -f "$path"; \
    done

# The toolkit is copied last: an edit of it rebuilds, pushes and pulls one small layer.
COPY toolkit/ /opt/verljob/
ENTRYPOINT ["/usr/bin/tini", "-g", "--", "/opt/verljob/entrypoint.sh"]
CMD ["node"]
