# Rendered from dockerfiles/wheels.j2 and images/catalog.toml by `invoke render`. Do not edit.
# `invoke build --variant cu130-wheels` stages its context: steps/, apt.txt, lock.txt, verl.txt, wheelhouse/,
# debs/, git/, toolkit/, with --verl also verl/.
ARG BASE=docker.io/library/ubuntu:24.04
FROM ${BASE}

RUN --mount=type=secret,id=ca --mount=type=secret,id=apt --mount=type=secret,id=sources \
    --mount=type=bind,source=debs,target=/debs \
    --mount=type=bind,source=steps/apt.sh,target=/apt.sh --mount=type=bind,source=apt.txt,target=/apt.txt \
    APT_CONFIG=/run/secrets/apt DEBIAN_FRONTEND=noninteractive APT_MIRROR="http://archive.ubuntu.com/ubuntu" APT_SUITES="noble main universe;noble-updates main universe" SOURCE_DATE_EPOCH=315532800 \
    sh /apt.sh /apt.txt ca-certificates g++ ibverbs-providers librdmacm1t64 python3 python3-dev python3-venv tini
RUN export SOURCE_DATE_EPOCH=315532800 \
 && python3 -m venv /opt/venv \
 && printf '%s\n' /opt/verljob/python /opt/verl > "$(/opt/venv/bin/python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/verljob.pth"
ENV PATH=/opt/venv/bin:$PATH \
    CUDA_HOME=/opt/venv/lib/python3.12/site-packages/nvidia/cu13

# torch with CUDA's libraries, then the rollout engine: what other variants have in their base, in layers that change least.
# nvcc, which is one of the wheels, compiles kernels at run time (FlashInfer, DeepGEMM): its linker looks for libraries in lib64, by
# names without a version, which the wheels do not have.
RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=steps,target=/steps --mount=type=bind,source=torch.txt,target=/torch.txt \
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=315532800 \
 && pip install --no-compile --no-deps --require-hashes --only-binary :all: -r /torch.txt \
 && ln -s lib "$CUDA_HOME/lib64" \
 && for library in "$CUDA_HOME"/lib/lib*.so.*; do ln -sf "${library##*/}" "${library%%.so.*}.so"; done \
 && python3 /steps/compile.py --installed /torch.txt
RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=steps,target=/steps --mount=type=bind,source=engine.txt,target=/engine.txt \
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=315532800 \
 && pip install --no-compile --no-deps --require-hashes --only-binary :all: -r /engine.txt \
 && python3 /steps/compile.py --installed /engine.txt

# Removed: tests and headers of other packages, and Ray's Java and C++ interfaces.
RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=steps,target=/steps --mount=type=bind,source=lock.txt,target=/lock.txt \
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=315532800 \
 && python3 /steps/guard.py record --lock /lock.txt \
        --protect "apex deep-ep flash-attn flashinfer-python megatron-bridge megatron-core nvidia-cudnn-cu12 nvidia-cudnn-cu13 nvidia-nccl-cu12 nvidia-nccl-cu13 sgl-kernel sglang sglang-kernel torch torch-memory-saver torchaudio torchcodec torchvision transformer-engine triton vllm vllm-omni xformers" \
        --has "" \
        --wanted "debugpy==1.8.20 ray==2.55.1 transformers==5.9.0 tensordict==0.10.0 transferqueue==0.1.11 cachetools==8.0.0 msgspec==0.22.0 pyzmq==27.3.0 fastapi==0.136.3 uvicorn==0.54.0 math-verify==0.9.0 torchvision==0.26.0 torchaudio==2.11.0 vllm==0.24.0" --own "apex deep-ep flash-attn flashinfer-python megatron-bridge megatron-core nvidia-cudnn-cu12 nvidia-cudnn-cu13 nvidia-nccl-cu12 nvidia-nccl-cu13 sgl-kernel sglang sglang-kernel torch torch-memory-saver torchaudio torchcodec torchvision transformer-engine triton vllm vllm-omni xformers" \
 && python3 /steps/guard.py install --lock /lock.txt \
 && site="$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
 && rm -rf "$site"/pandas/tests "$site"/pyarrow/tests "$site"/pyarrow/include "$site"/pyarrow/src "$site"/ray/jars "$site"/ray/cpp \
 && find "$site"/sympy "$site"/networkx -type d -name tests -prune -exec rm -rf {} + \
 && python3 /steps/compile.py --installed /opt/verljob/guard/requirements.txt \
 && python3 /steps/guard.py verify --pins "torch==2.11.0 debugpy==1.8.20 ray==2.55.1 transformers==5.9.0 tensordict==0.10.0 TransferQueue==0.1.11 cachetools==8.0.0 msgspec==0.22.0 pyzmq==27.3.0 fastapi==0.136.3 uvicorn==0.54.0 math-verify==0.9.0 torchvision==0.26.0 torchaudio==2.11.0 vllm==0.24.0" --tolerate ""

RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=steps,target=/steps \
    --mount=type=bind,source=lock.txt,target=/lock.txt --mount=type=bind,source=verl.txt,target=/verl.txt \
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=315532800 \
 && python3 /steps/guard.py install --lock /lock.txt /verl.txt --wanted "verl==0.9.1" \
 && python3 /steps/compile.py --installed /opt/verljob/guard/requirements.txt \
 && python3 /steps/guard.py verify --imports "torch ray transformers transfer_queue fastapi uvicorn verl" --pins "verl==0.9.1" \
        --training "verl.workers.engine_workers verl.workers.engine verl.workers.rollout.vllm_rollout verl.workers.rollout.vllm_rollout.vllm_async_server" \
        --tolerate ""

# A CUDA base sets the first two, by which the NVIDIA container toolkit and enroot's hook add the driver. torch requires headers of
# CUDA 13.0 and FlashInfer nvcc 13.2, which CCCL refuses unless its check is disabled.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    NVCC_APPEND_FLAGS=-DCCCL_DISABLE_CTK_COMPATIBILITY_CHECK \
    RAY_USAGE_STATS_ENABLED=0 \
    RAY_ENABLE_UV_RUN_RUNTIME_ENV=0 \
    PIP_CONSTRAINT=/opt/verljob/guard/protected.txt
LABEL org.opencontainers.image.title="verl.cuda" \
      org.opencontainers.image.description="verl 0.9.1 for cuda: NVIDIA Ampere to Blackwell, CUDA 13.0, of wheels alone: no other image below it, and no flash-attn" \
      org.opencontainers.image.version="0.9.1-cu130-wheels" \
      org.opencontainers.image.ref.name="0.9.1-cu130-wheels" \
      org.opencontainers.image.revision="v0.9.1" \
      org.opencontainers.image.source="https://github.com/verl-project/verl" \
      org.opencontainers.image.url="https://github.com/verl-project/verl" \
      org.opencontainers.image.documentation="https://verl.readthedocs.io" \
      org.opencontainers.image.authors="verl on Slurm" \
      org.opencontainers.image.vendor="verl on Slurm" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="docker.io/library/ubuntu:24.04" \
      verljob.platform="cuda" \
      verljob.variant="cu130-wheels" \
      verljob.rollout="vllm" \
      verljob.machine="x86_64" \
      verljob.attention="sdpa: no flash-attn, so no removal of padding" \
      verljob.gpus="sm80 sm90 sm100" \
      verljob.state="ran (2026-11-26, x86_64, one and two H100s): gsm8k_grpo and gsm8k_ppo with vLLM rollouts, random weights of the shapes of Qwen2-0.5B, 1.5B and 7B, with the packages of its lock in a Python environment outside of the image, to the last step (docs/benchmarks.md); the image was built whole and imported without a GPU" \
      verljob.pin.cachetools="8.0.0" \
      verljob.pin.debugpy="1.8.20" \
      verljob.pin.fastapi="0.136.3" \
      verljob.pin.math-verify="0.9.0" \
      verljob.pin.msgspec="0.22.0" \
      verljob.pin.python="3.12" \
      verljob.pin.pyzmq="27.3.0" \
      verljob.pin.ray="2.55.1" \
      verljob.pin.tensordict="0.10.0" \
      verljob.pin.torch="2.11.0" \
      verljob.pin.torchaudio="2.11.0" \
      verljob.pin.torchvision="0.26.0" \
      verljob.pin.transferqueue="0.1.11" \
      verljob.pin.transformers="5.9.0" \
      verljob.pin.uvicorn="0.54.0" \
      verljob.pin.verl="0.9.1" \
      verljob.pin.vllm="0.24.0" \
      verljob.template="65debdc5a4d2"

# docker leaves the empty mount points of RUN --mount, buildah and podman do not: removed, all build the same image.
RUN for path in /steps /debs /wheelhouse /root/.cache/pip /root/.cache; do \
        [ ! -d "$path" ] || rmdir --ignore-fail-on-non-empty "$path"; \
    done \
 && for path in /apt.sh /apt.txt /torch.txt /engine.txt /lock.txt /verl.txt; do \
        [ -s "$path" ] || rm -f "$path"; \
    done

# The toolkit is copied last: an edit of it rebuilds, pushes and pulls one small layer.
COPY toolkit/ /opt/verljob/
ENTRYPOINT ["/usr/bin/tini", "-g", "--", "/opt/verljob/entrypoint.sh"]
CMD ["node"]
