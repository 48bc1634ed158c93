# Rendered from dockerfiles/rocm.j2 and images/catalog.toml by `invoke render`. Do not edit.
# `invoke build --variant rocm10` stages its context: steps/, apt.txt, lock.txt, verl.txt, wheelhouse/,
# debs/, git/, toolkit/, with --verl also verl/.
ARG BASE=docker.io/rocm/primus:v26.7

# vllm 0.27.0 replaces the base's: the base is for training and has none. The commit's hash is its checksum.
FROM ${BASE} AS vllm
# hadolint ignore=DL3002
USER 0
WORKDIR /src/vllm
RUN --mount=type=secret,id=ca --mount=type=secret,id=git --mount=type=bind,source=git,target=/git \
    git init --quiet . \
 && git -c include.path=/run/secrets/git fetch --quiet --depth 1 https://github.com/vllm-project/vllm.git 4bdc8a788d2e2ce9165d552b3d4d8b72604626bf \
 && git checkout --quiet FETCH_HEAD
# Its requirements, from the lock, of which some are needed to build it. Its build looks for HIP in /usr/lib.
RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=steps,target=/steps --mount=type=bind,source=lock.txt,target=/lock.txt \
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore \
 && python3 /steps/guard.py record --lock /lock.txt --protect "aiter amdsmi apex flash-attn megatron-bridge megatron-core pytorch-triton-rocm sgl-kernel sglang torch torchaudio torchvision transformer-engine triton xformers" --wanted "debugpy==1.8.20 ray==2.58.0 transformers==5.9.0 tensordict==0.10.0 transferqueue==0.1.11 cachetools==8.0.0 msgspec==0.22.0 pyzmq==27.3.0 fastapi==0.136.3 uvicorn==0.54.0 math-verify==0.9.0 cupy-rocm-7-0==14.1.1" \
 && python3 /steps/guard.py install --lock /lock.txt \
 && ln -sf "$ROCM_PATH/lib/libamdhip64.so" /usr/lib/libamdhip64.so
RUN --mount=type=cache,target=/root/.cache/ccache \
    SOURCE_DATE_EPOCH=315532800 \
    SETUPTOOLS_SCM_PRETEND_VERSION="0.27.0" \
    VLLM_TARGET_DEVICE="rocm" \
    CMAKE_PREFIX_PATH="$ROCM_PATH/lib/cmake" \
    PYTORCH_ROCM_ARCH="gfx942;gfx950" \
    MAX_JOBS="$(nproc)" python3 setup.py bdist_wheel --dist-dir /wheels

FROM ${BASE}

# hadolint ignore=DL3002
USER 0
# A checkout in the base's own folder, as AMD's verl in /app, would be first on the path of `python3 -m`.
WORKDIR /
RUN --mount=type=secret,id=ca --mount=type=secret,id=apt --mount=type=secret,id=sources \
    --mount=type=bind,source=debs,target=/debs \
    --mount=type=bind,source=steps/apt.sh,target=/apt.sh --mount=type=bind,source=apt.txt,target=/apt.txt \
    APT_CONFIG=/run/secrets/apt DEBIAN_FRONTEND=noninteractive APT_MIRROR="http://archive.ubuntu.com/ubuntu" APT_SUITES="noble main universe;noble-updates main universe" SOURCE_DATE_EPOCH=315532800 \
    sh /apt.sh /apt.txt tini

RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=steps,target=/steps \
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=315532800 \
 && python3 /steps/amd_smi.py

RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,from=vllm,source=/wheels,target=/wheels/vllm \
    --mount=type=bind,source=steps,target=/steps --mount=type=bind,source=lock.txt,target=/lock.txt \
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=315532800 \
 && python3 /steps/guard.py record --lock /lock.txt \
        --protect "aiter amdsmi apex flash-attn megatron-bridge megatron-core pytorch-triton-rocm sgl-kernel sglang torch torchaudio torchvision transformer-engine triton xformers" \
        --has "torch==2.12.0" \
        --wanted "debugpy==1.8.20 ray==2.58.0 transformers==5.9.0 tensordict==0.10.0 transferqueue==0.1.11 cachetools==8.0.0 msgspec==0.22.0 pyzmq==27.3.0 fastapi==0.136.3 uvicorn==0.54.0 math-verify==0.9.0 cupy-rocm-7-0==14.1.1" \
 && unset PIP_CONSTRAINT \
 && python3 -m pip install --no-deps --no-index /wheels/*/*.whl \
 && python3 /steps/guard.py install --lock /lock.txt \
 && printf '%s\n' /opt/verljob/python /opt/verl > "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/verljob.pth" \
 && python3 /steps/compile.py --installed /opt/verljob/guard/requirements.txt \
 && python3 /steps/guard.py verify --pins "debugpy==1.8.20 ray==2.58.0 transformers==5.9.0 tensordict==0.10.0 TransferQueue==0.1.11 cachetools==8.0.0 msgspec==0.22.0 pyzmq==27.3.0 fastapi==0.136.3 uvicorn==0.54.0 math-verify==0.9.0 cupy-rocm-7-0==14.1.1 vllm==0.27.0" --tolerate ""

RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=steps,target=/steps \
    --mount=type=bind,source=lock.txt,target=/lock.txt --mount=type=bind,source=verl.txt,target=/verl.txt \
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=315532800 \
 && python3 /steps/guard.py install --lock /lock.txt /verl.txt --wanted "verl==0.9.1" \
 && python3 /steps/compile.py --installed /opt/verljob/guard/requirements.txt \
 && python3 /steps/guard.py verify --imports "torch ray transformers transfer_queue fastapi uvicorn verl" --pins "verl==0.9.1" \
        --training "verl.workers.engine_workers verl.workers.engine verl.workers.rollout.vllm_rollout verl.workers.rollout.vllm_rollout.vllm_async_server" --rocm \
        --tolerate ""

# Code compiled at run time (aiter, extensions of torch) targets these architectures.
ENV PYTORCH_ROCM_ARCH="gfx942;gfx950" \
    RAY_USAGE_STATS_ENABLED=0 \
    RAY_ENABLE_UV_RUN_RUNTIME_ENV=0 \
    PIP_CONSTRAINT=/opt/verljob/guard/protected.txt
ENV VERLJOB_IMAGE_OVERRIDES="+actor_rollout_ref.rollout.engine_kwargs.vllm.disable_custom_all_reduce=true"
LABEL org.opencontainers.image.title="verl.rocm" \
      org.opencontainers.image.description="verl 0.9.1 for rocm: AMD Instinct MI300 and MI350, ROCm 10.0, vLLM 0.27 compiled by the build; FSDP alone" \
      org.opencontainers.image.version="0.9.1-rocm10" \
      org.opencontainers.image.ref.name="0.9.1-rocm10" \
      org.opencontainers.image.revision="v0.9.1" \
      org.opencontainers.image.source="https://github.com/verl-project/verl" \
      org.opencontainers.image.url="https://github.com/verl-project/verl" \
      org.opencontainers.image.documentation="https://verl.readthedocs.io" \
      org.opencontainers.image.authors="verl on Slurm" \
      org.opencontainers.image.vendor="verl on Slurm" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="docker.io/rocm/primus:v26.7" \
      verljob.platform="rocm" \
      verljob.variant="rocm10" \
      verljob.rollout="vllm" \
      verljob.machine="x86_64" \
      verljob.gpus="gfx942 gfx950" \
      verljob.state="reasoned: AMD trains its verl 0.9.0.amd0 on this base with this vLLM and this Ray; verl 0.9.1 and transformers 5.9.0 in their place are untried (https://rocm.docs.amd.com/projects/verl/en/docs-26.09/install/verl-install.html)" \
      verljob.pin.cachetools="8.0.0" \
      verljob.pin.cupy-rocm-7-0="14.1.1" \
      verljob.pin.debugpy="1.8.20" \
      verljob.pin.fastapi="0.136.3" \
      verljob.pin.math-verify="0.9.0" \
      verljob.pin.msgspec="0.22.0" \
      verljob.pin.python="3.12" \
      verljob.pin.pyzmq="27.3.0" \
      verljob.pin.ray="2.58.0" \
      verljob.pin.tensordict="0.10.0" \
      verljob.pin.torch="2.12.0" \
      verljob.pin.transferqueue="0.1.11" \
      verljob.pin.transformers="5.9.0" \
      verljob.pin.uvicorn="0.54.0" \
      verljob.pin.verl="0.9.1" \
      verljob.pin.vllm="0.27.0" \
      verljob.template="feed2a2f330c"

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
