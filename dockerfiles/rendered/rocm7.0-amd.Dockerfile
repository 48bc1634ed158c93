# Rendered from dockerfiles/rocm.j2 and images/catalog.toml by `invoke render`. Do not edit.
# `invoke build --variant rocm7.0-amd` stages its context: steps/, apt.txt, lock.txt, verl.txt, wheelhouse/,
# debs/, git/, toolkit/, with --verl also verl/.
ARG BASE=docker.io/rocm/verl:verl-0.6.0.amd0_rocm7.0_vllm0.11.0.dev@sha256:f70a3ebc94c1f66de42a2fcc3f8a6a8d6d0881eb0e65b6958d7d6d24b3eecb0d

FROM ${BASE}

# hadolint ignore=DL3002
USER 0
# A checkout in the base's own folder, as AMD's verl in /app, would be first on the path of `python3 -m`.
WORKDIR /
RUN --mount=type=secret,id=ca --mount=type=secret,id=apt --mount=type=secret,id=sources \
    --mount=type=bind,source=debs,target=/debs \
    --mount=type=bind,source=steps/apt.sh,target=/apt.sh --mount=type=bind,source=apt.txt,target=/apt.txt \
    APT_CONFIG=/run/secrets/apt DEBIAN_FRONTEND=noninteractive APT_MIRROR="http://archive.ubuntu.com/ubuntu" APT_SUITES="jammy main universe;jammy-updates main universe" SOURCE_DATE_EPOCH=315532800 \
    sh /apt.sh /apt.txt tini

RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=steps,target=/steps --mount=type=bind,source=lock.txt,target=/lock.txt \
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=315532800 \
 && python3 /steps/guard.py record --lock /lock.txt \
        --protect "aiter amdsmi apex flash-attn megatron-bridge megatron-core pytorch-triton-rocm sgl-kernel sglang torch torchaudio torchvision transformer-engine triton vllm xformers" \
        --has "torch==2.9.0 vllm==0.11.0" \
        --wanted "debugpy==1.8.20 ray==2.52.1 tensordict==0.10.0" \
 && python3 /steps/guard.py install --lock /lock.txt \
 && printf '%s\n' /opt/verljob/python /opt/verl > "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/verljob.pth" \
 && python3 /steps/compile.py --installed /opt/verljob/guard/requirements.txt \
 && python3 /steps/guard.py verify --pins "debugpy==1.8.20 ray==2.52.1 tensordict==0.10.0" --tolerate ""

RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=steps,target=/steps \
    --mount=type=bind,source=lock.txt,target=/lock.txt --mount=type=bind,source=verl.txt,target=/verl.txt \
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=315532800 \
 && python3 /steps/guard.py install --lock /lock.txt /verl.txt --wanted "verl==0.6.1" \
 && python3 /steps/compile.py --installed /opt/verljob/guard/requirements.txt \
 && python3 /steps/guard.py verify --imports "torch ray verl" --pins "verl==0.6.1" \
        --training "verl.workers.fsdp_workers verl.workers.actor verl.workers.rollout.vllm_rollout" --rocm \
        --tolerate ""

# Code compiled at run time (aiter, extensions of torch) targets these architectures.
ENV PYTORCH_ROCM_ARCH="gfx942" \
    RAY_USAGE_STATS_ENABLED=0 \
    RAY_ENABLE_UV_RUN_RUNTIME_ENV=0 \
    PIP_CONSTRAINT=/opt/verljob/guard/protected.txt
LABEL org.opencontainers.image.title="verl.rocm" \
      org.opencontainers.image.description="verl 0.6.1 for rocm: AMD Instinct MI300, ROCm 7.0, AMD's image for verl 0.6, vLLM 0.11 with sleep mode" \
      org.opencontainers.image.version="0.6.1-rocm7.0-amd" \
      org.opencontainers.image.ref.name="0.6.1-rocm7.0-amd" \
      org.opencontainers.image.revision="v0.6.1" \
      org.opencontainers.image.source="https://github.com/verl-project/verl" \
      org.opencontainers.image.url="https://github.com/verl-project/verl" \
      org.opencontainers.image.documentation="https://verl.readthedocs.io" \
      org.opencontainers.image.authors="verl on Slurm" \
      org.opencontainers.image.vendor="verl on Slurm" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="docker.io/rocm/verl:verl-0.6.0.amd0_rocm7.0_vllm0.11.0.dev" \
      verljob.platform="rocm" \
      verljob.variant="rocm7.0-amd" \
      verljob.rollout="vllm" \
      verljob.machine="x86_64" \
      verljob.gpus="gfx942" \
      verljob.state="reasoned: AMD trains in this image with verl's commit 0eb50ec4; verl 0.6.1 is that commit and 22 more (https://rocm.docs.amd.com/projects/verl/en/docs-26.02/install/verl-install.html)" \
      verljob.pin.debugpy="1.8.20" \
      verljob.pin.python="3.12" \
      verljob.pin.ray="2.52.1" \
      verljob.pin.tensordict="0.10.0" \
      verljob.pin.torch="2.9.0" \
      verljob.pin.verl="0.6.1" \
      verljob.pin.vllm="0.11.0" \
      verljob.template="381844694306"

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
