# Rendered from dockerfiles/rocm.j2 and images/catalog.toml by `invoke render`. Do not edit.
# `invoke build --variant rocm7.0.2-amd` stages its context: steps/, apt.txt, lock.txt, verl.txt, wheelhouse/,
# debs/, git/, toolkit/, with --verl also verl/.
ARG BASE=docker.io/rocm/verl:verl-0.7.1.amd0_rocm7.0.2_ubuntu22.04_py3.12_vllm0.20.2@sha256:64072e02ef3fc364a0bef09e71c0f4b3ae32ba6fc65e4d121a4736a538aa2bb8

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
        --has "torch==2.9.1 vllm==0.20.2 megatron-core==0.16.0" \
        --wanted "debugpy==1.8.20 ray==2.55.1 tensordict==0.10.0" \
 && python3 /steps/guard.py install --lock /lock.txt \
 && printf '%s\n' /opt/verljob/python /opt/verl > "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/verljob.pth" \
 && python3 /steps/compile.py --installed /opt/verljob/guard/requirements.txt \
 && python3 /steps/guard.py verify --pins "debugpy==1.8.20 ray==2.55.1 tensordict==0.10.0" --tolerate ""

RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=steps,target=/steps \
    --mount=type=bind,source=lock.txt,target=/lock.txt --mount=type=bind,source=verl.txt,target=/verl.txt \
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=315532800 \
 && python3 /steps/guard.py install --lock /lock.txt /verl.txt --wanted "verl==0.8.0" \
 && python3 /steps/compile.py --installed /opt/verljob/guard/requirements.txt \
 && python3 /steps/guard.py verify --imports "torch ray verl" --pins "verl==0.8.0" \
        --training "verl.workers.engine_workers verl.workers.engine verl.workers.rollout.vllm_rollout verl.workers.rollout.vllm_rollout.vllm_async_server" --rocm \
        --tolerate ""

# Code compiled at run time (aiter, extensions of torch) targets these architectures.
ENV PYTORCH_ROCM_ARCH="gfx942;gfx950" \
    RAY_USAGE_STATS_ENABLED=0 \
    RAY_ENABLE_UV_RUN_RUNTIME_ENV=0 \
    PIP_CONSTRAINT=/opt/verljob/guard/protected.txt
LABEL org.opencontainers.image.title="verl.rocm" \
      org.opencontainers.image.description="verl 0.8.0 for rocm: AMD Instinct MI300 and MI350, ROCm 7.0.2, AMD's image for verl 0.7.1 to 0.8, vLLM 0.20" \
      org.opencontainers.image.version="0.8.0-rocm7.0.2-amd" \
      org.opencontainers.image.ref.name="0.8.0-rocm7.0.2-amd" \
      org.opencontainers.image.revision="v0.8.0" \
      org.opencontainers.image.source="https://github.com/verl-project/verl" \
      org.opencontainers.image.url="https://github.com/verl-project/verl" \
      org.opencontainers.image.documentation="https://verl.readthedocs.io" \
      org.opencontainers.image.authors="verl on Slurm" \
      org.opencontainers.image.vendor="verl on Slurm" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="docker.io/rocm/verl:verl-0.7.1.amd0_rocm7.0.2_ubuntu22.04_py3.12_vllm0.20.2" \
      verljob.platform="rocm" \
      verljob.variant="rocm7.0.2-amd" \
      verljob.rollout="vllm" \
      verljob.machine="x86_64" \
      verljob.gpus="gfx942 gfx950" \
      verljob.state="reasoned: AMD trains in this image with its own verl, which is verl's main of 2026-05-07 (0.8.0.dev0); verl 0.8.0 is that commit and 126 more (https://rocm.docs.amd.com/projects/verl/en/docs-26.06/install/verl-install.html)" \
      verljob.pin.debugpy="1.8.20" \
      verljob.pin.megatron-core="0.16.0" \
      verljob.pin.python="3.12" \
      verljob.pin.ray="2.55.1" \
      verljob.pin.tensordict="0.10.0" \
      verljob.pin.torch="2.9.1" \
      verljob.pin.verl="0.8.0" \
      verljob.pin.vllm="0.20.2" \
      verljob.template="e706537e4518"

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
