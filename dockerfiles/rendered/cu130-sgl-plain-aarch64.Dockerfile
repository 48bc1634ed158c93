# Rendered from dockerfiles/cuda.j2 and images/catalog.toml by `invoke render`. Do not edit.
# `invoke build --variant cu130-sgl-plain-aarch64` stages its context: steps/, apt.txt, lock.txt, verl.txt, wheelhouse/,
# debs/, git/, toolkit/, with --verl also verl/.
ARG BASE=docker.io/lmsysorg/sglang:v0.5.12@sha256:42194170546745092e74cd5f81ad32a7c6e944c7111fe7bf13588152277ff356
FROM ${BASE}

# hadolint ignore=DL3002
USER 0
RUN --mount=type=secret,id=ca --mount=type=secret,id=apt --mount=type=secret,id=sources \
    --mount=type=bind,source=debs,target=/debs \
    --mount=type=bind,source=steps/apt.sh,target=/apt.sh --mount=type=bind,source=apt.txt,target=/apt.txt \
    APT_CONFIG=/run/secrets/apt DEBIAN_FRONTEND=noninteractive APT_MIRROR="http://ports.ubuntu.com/ubuntu-ports" APT_SUITES="noble main universe;noble-updates main universe" SOURCE_DATE_EPOCH=315532800 \
    sh /apt.sh /apt.txt tini

RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=steps,target=/steps --mount=type=bind,source=lock.txt,target=/lock.txt \
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=315532800 \
 && python3 /steps/guard.py record --lock /lock.txt \
        --protect "apex deep-ep flash-attn flashinfer-python megatron-bridge megatron-core nvidia-cudnn-cu12 nvidia-cudnn-cu13 nvidia-nccl-cu12 nvidia-nccl-cu13 sgl-kernel sglang sglang-kernel torch torch-memory-saver torchaudio torchcodec torchvision transformer-engine triton vllm vllm-omni xformers" \
        --has "torch==2.11.0 sglang==0.5.12" \
        --wanted "debugpy==1.8.20 ray==2.55.1 transformers==5.9.0 tensordict==0.10.0 transferqueue==0.1.11 cachetools==8.0.0 msgspec==0.22.0 pyzmq==27.3.0 fastapi==0.136.3 uvicorn==0.54.0 math-verify==0.9.0" \
 && python3 /steps/guard.py install --lock /lock.txt \
 && printf '%s\n' /opt/verljob/python /opt/verl > "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/verljob.pth" \
 && python3 /steps/compile.py --installed /opt/verljob/guard/requirements.txt \
 && python3 /steps/guard.py verify --pins "debugpy==1.8.20 ray==2.55.1 transformers==5.9.0 tensordict==0.10.0 TransferQueue==0.1.11 cachetools==8.0.0 msgspec==0.22.0 pyzmq==27.3.0 fastapi==0.136.3 uvicorn==0.54.0 math-verify==0.9.0" --tolerate "sglang:transformers"

RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=steps,target=/steps \
    --mount=type=bind,source=lock.txt,target=/lock.txt --mount=type=bind,source=verl.txt,target=/verl.txt \
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=315532800 \
 && python3 /steps/guard.py install --lock /lock.txt /verl.txt --wanted "verl==0.9.1" \
 && python3 /steps/compile.py --installed /opt/verljob/guard/requirements.txt \
 && python3 /steps/guard.py verify --imports "torch ray transformers transfer_queue fastapi uvicorn verl" --pins "verl==0.9.1" \
        --training "verl.workers.engine_workers verl.workers.engine verl.workers.rollout.sglang_rollout.sglang_rollout verl.workers.rollout.sglang_rollout.async_sglang_server" \
        --tolerate "sglang:transformers"

ENV RAY_USAGE_STATS_ENABLED=0 \
    RAY_ENABLE_UV_RUN_RUNTIME_ENV=0 \
    PIP_CONSTRAINT=/opt/verljob/guard/protected.txt
ENV VERLJOB_IMAGE_OVERRIDES="+actor_rollout_ref.model.override_config.attn_implementation=sdpa actor_rollout_ref.model.use_remove_padding=false +critic.model.override_config.attn_implementation=sdpa critic.model.use_remove_padding=false"
LABEL org.opencontainers.image.title="verl.cuda" \
      org.opencontainers.image.description="verl 0.9.1 for cuda: SGLang's own image, also for Grace Hopper and Grace Blackwell, CUDA 13.0; FSDP alone, without flash-attn" \
      org.opencontainers.image.version="0.9.1-cu130-sgl-plain-aarch64" \
      org.opencontainers.image.ref.name="0.9.1-cu130-sgl-plain-aarch64" \
      org.opencontainers.image.revision="v0.9.1" \
      org.opencontainers.image.source="https://github.com/verl-project/verl" \
      org.opencontainers.image.url="https://github.com/verl-project/verl" \
      org.opencontainers.image.documentation="https://verl.readthedocs.io" \
      org.opencontainers.image.authors="verl on Slurm" \
      org.opencontainers.image.vendor="verl on Slurm" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="docker.io/lmsysorg/sglang:v0.5.12" \
      verljob.platform="cuda" \
      verljob.variant="cu130-sgl-plain-aarch64" \
      verljob.rollout="sglang" \
      verljob.machine="aarch64" \
      verljob.gpus="sm80 sm90 sm100" \
      verljob.state="reasoned: verl's image for SGLang is built on this one, with the same torch and SGLang; without flash-attn and Megatron it is untried (https://github.com/verl-project/verl/blob/v0.9.0/docker/Dockerfile.stable.sglang)" \
      verljob.pin.cachetools="8.0.0" \
      verljob.pin.debugpy="1.8.20" \
      verljob.pin.fastapi="0.136.3" \
      verljob.pin.math-verify="0.9.0" \
      verljob.pin.msgspec="0.22.0" \
      verljob.pin.python="3.12" \
      verljob.pin.pyzmq="27.3.0" \
      verljob.pin.ray="2.55.1" \
      verljob.pin.sglang="0.5.12" \
      verljob.pin.tensordict="0.10.0" \
      verljob.pin.torch="2.11.0" \
      verljob.pin.transferqueue="0.1.11" \
      verljob.pin.transformers="5.9.0" \
      verljob.pin.uvicorn="0.54.0" \
      verljob.pin.verl="0.9.1" \
      verljob.template="0caddf293f3a"

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
