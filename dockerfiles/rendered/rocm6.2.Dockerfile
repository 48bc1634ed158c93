# Rendered from dockerfiles/rocm.j2 and images/catalog.toml by `invoke render`. Do not edit.
# `invoke build --variant rocm6.2` stages its context: steps/, lock.txt, wheelhouse/, toolkit/.
ARG BASE=docker.io/rocm/vllm:rocm6.2_mi300_ubuntu20.04_py3.9_vllm_0.6.4

# vllm 0.6.3 in place of the base's: verl 0.3.0.post1 to 0.4.1 raise on vLLM 0.6.4. The commit's hash is its checksum.
FROM ${BASE} AS vllm
# hadolint ignore=DL3002
USER 0
WORKDIR /src/vllm
RUN --mount=type=secret,id=ca \
    if [ -s /run/secrets/ca ]; then export GIT_SSL_CAINFO=/run/secrets/ca; fi \
 && git init --quiet . \
 && git fetch --quiet --depth 1 https://github.com/vllm-project/vllm.git fd47e57f4b0d5f7920903490bce13bc9e49d8dba \
 && git checkout --quiet FETCH_HEAD
RUN --mount=type=cache,target=/root/.cache/ccache \
    SOURCE_DATE_EPOCH=315532800 \
    SETUPTOOLS_SCM_PRETEND_VERSION="0.6.3" \
    VLLM_TARGET_DEVICE="rocm" \
    PYTORCH_ROCM_ARCH="gfx90a;gfx942" \
    MAX_JOBS="$(nproc)" python3 setup.py bdist_wheel --dist-dir /wheels

FROM ${BASE}

# hadolint ignore=DL3002
USER 0
# hadolint ignore=DL3008
RUN --mount=type=secret,id=ca --mount=type=secret,id=apt --mount=type=secret,id=sources \
    export APT_CONFIG=/run/secrets/apt DEBIAN_FRONTEND=noninteractive SOURCE_DATE_EPOCH=315532800 \
 && apt-get update \
 && apt-get install --yes --no-install-recommends tini \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/*.log /var/cache/ldconfig/aux-cache

RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,from=vllm,source=/wheels,target=/wheels/vllm \
    --mount=type=bind,source=steps,target=/steps --mount=type=bind,source=lock.txt,target=/lock.txt \
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=315532800 \
 && python3 /steps/guard.py record --lock /lock.txt \
        --protect "aiter amdsmi flash-attn pytorch-triton-rocm torch torchaudio torchvision triton xformers" \
        --has "torch==2.5.0 vllm==0.6.4" \
        --wanted "ray[default]==2.44.1 debugpy==1.8.16" \
        --bare "tensordict==0.6.2 verl==0.4.1" \
 && export PIP_CONSTRAINT=/opt/verljob/guard/constraints.txt \
 && python3 -m pip install -r /opt/verljob/guard/requirements.txt /wheels/*/*.whl \
 && python3 -m pip install --no-deps tensordict==0.6.2 verl==0.4.1 \
 && echo /opt/verljob/python > "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/verljob.pth" \
 && python3 /steps/guard.py verify --imports "torch ray verl" \
        --pins "verl==0.4.1 ray==2.44.1 tensordict==0.6.2 debugpy==1.8.16 vllm==0.6.3" \
        --tolerate "tensordict:torch"

ENV RAY_USAGE_STATS_ENABLED=0 \
    RAY_ENABLE_UV_RUN_RUNTIME_ENV=0 \
    PIP_CONSTRAINT=/opt/verljob/guard/protected.txt
LABEL org.opencontainers.image.title="verl.rocm" \
      org.opencontainers.image.description="verl 0.4.1 for rocm: AMD Instinct MI200 and MI300, ROCm 6.2" \
      org.opencontainers.image.version="0.4.1-rocm6.2" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="docker.io/rocm/vllm:rocm6.2_mi300_ubuntu20.04_py3.9_vllm_0.6.4" \
      verljob.platform="rocm" \
      verljob.variant="rocm6.2" \
      verljob.rollout="vllm" \
      verljob.pin.debugpy="1.8.16" \
      verljob.pin.python="3.9" \
      verljob.pin.ray="2.44.1" \
      verljob.pin.tensordict="0.6.2" \
      verljob.pin.torch="2.5.0" \
      verljob.pin.verl="0.4.1" \
      verljob.pin.vllm="0.6.3" \
      verljob.template="651320809cd6"

# docker leaves empty what it made to mount something there, buildah and podman do not: gone, an image is the same of all.
RUN for place in /steps /wheels/vllm /wheels /root/.cache/pip /root/.cache; do \
        [ ! -d "$place" ] || rmdir --ignore-fail-on-non-empty "$place"; \
    done \
 && if [ ! -s /lock.txt ]; then rm -f /lock.txt; fi

# The toolkit comes last: an edit of it rebuilds, pushes and pulls one small layer.
COPY toolkit/ /opt/verljob/
ENTRYPOINT ["/usr/bin/tini", "-g", "--", "/opt/verljob/entrypoint.sh"]
CMD ["node"]
