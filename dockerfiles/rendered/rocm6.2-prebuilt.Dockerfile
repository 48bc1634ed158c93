# Rendered from dockerfiles/rocm.j2 and images/catalog.toml by `invoke render`. Do not edit.
# `invoke build --variant rocm6.2-prebuilt` stages its context: steps/, apt.txt, lock.txt, verl.txt, wheelhouse/,
# debs/, git/, toolkit/, with --verl also verl/.
ARG BASE=docker.io/rocm/verl:verl-0.3.0.post0_rocm6.2_vllm0.6.3@sha256:cbe423803fd7850448b22444176bee06f4dcf22cd3c94c27732752d3a39b04b2

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
    --mount=type=bind,source=steps,target=/steps \
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=315532800 \
 && python3 /steps/vllm_import.py

RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=steps,target=/steps --mount=type=bind,source=lock.txt,target=/lock.txt \
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=315532800 \
 && python3 /steps/guard.py record --lock /lock.txt \
        --protect "aiter amdsmi flash-attn pytorch-triton-rocm torch torchaudio torchvision triton vllm xformers" \
        --has "torch==2.5.0 vllm==0.6.3" \
        --wanted "debugpy==1.8.16 tensordict==0.6.2 cachetools==5.5.2 ray==2.44.1 lm-format-enforcer==0.10.6" \
 && python3 /steps/guard.py install --lock /lock.txt \
 && printf '%s\n' /opt/verljob/python /opt/verl > "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/verljob.pth" \
 && python3 /steps/compile.py --installed /opt/verljob/guard/requirements.txt \
 && python3 /steps/guard.py verify --pins "debugpy==1.8.16 tensordict==0.6.2 cachetools==5.5.2 ray==2.44.1 lm-format-enforcer==0.10.6" --tolerate "tensordict:torch"

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
      org.opencontainers.image.description="verl 0.4.0 for rocm: AMD Instinct MI200 and MI300, ROCm 6.2, AMD's build of vLLM 0.6.3: nothing is compiled" \
      org.opencontainers.image.version="0.4.0-rocm6.2-prebuilt" \
      org.opencontainers.image.ref.name="0.4.0-rocm6.2-prebuilt" \
      org.opencontainers.image.revision="v0.4.0" \
      org.opencontainers.image.source="https://github.com/verl-project/verl" \
      org.opencontainers.image.url="https://github.com/verl-project/verl" \
      org.opencontainers.image.documentation="https://verl.readthedocs.io" \
      org.opencontainers.image.authors="verl on Slurm" \
      org.opencontainers.image.vendor="verl on Slurm" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="docker.io/rocm/verl:verl-0.3.0.post0_rocm6.2_vllm0.6.3" \
      verljob.platform="rocm" \
      verljob.variant="rocm6.2-prebuilt" \
      verljob.rollout="vllm" \
      verljob.machine="x86_64" \
      verljob.gpus="gfx90a gfx942" \
      verljob.state="reasoned: AMD publishes this image with verl 0.3.0.post0; verl 0.4.0 uses the same code for vLLM 0.6.3, and its trainer, actor and critic run under Python 3.9 without a GPU (docs/images.md)" \
      verljob.pin.cachetools="5.5.2" \
      verljob.pin.debugpy="1.8.16" \
      verljob.pin.lm-format-enforcer="0.10.6" \
      verljob.pin.python="3.9" \
      verljob.pin.ray="2.44.1" \
      verljob.pin.tensordict="0.6.2" \
      verljob.pin.torch="2.5.0" \
      verljob.pin.verl="0.4.0" \
      verljob.pin.vllm="0.6.3" \
      verljob.template="3823d09289ca"

# docker leaves the empty mount points of RUN --mount, buildah and podman do not: removed, all build the same image.
RUN for path in /steps /debs /wheelhouse /root/.cache/pip /root/.cache; do \
        [ ! -d "$path" ] || rmdir --ignore-fail-on-non-empty "$path"; \
    done \
 && for path in /apt.sh /apt.txt /lock.txt /verl.txt; do \
        [ -s "$path" ] || rm -f "$path"; \
    done

# The toolkit is copied last: an edit of it rebuilds, pushes and pulls one small layer.
COPY toolkit/ /opt/verljob/
ENTRYPOINT ["/usr/bin/tini", "-g", "--", "/opt/verljob/entrypoint.sh"]
CMD ["node"]
