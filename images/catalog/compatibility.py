"""Compatibility rules: refuse a variant that cannot work before a build starts.

verl's version ranges come from the METADATA of its wheels (images/catalog/verl_releases.py). If verl's own tests run
outside of them, the catalog says so under `outside`, with the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from packaging.metadata import Metadata
from packaging.utils import canonicalize_name
from packaging.version import Version

from images.catalog import verl_releases
from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.errors import Incompatible

# A package index has only CUDA builds of these for Linux; on ROCm they come from the base, or through `replaces`.
BUILT_FOR_CUDA = {
    "torch", "torchvision", "torchaudio", "triton", "vllm", "sglang", "sgl-kernel", "sglang-kernel", "xformers", "apex",
    "flash-attn", "flashinfer-python", "transformer-engine", "bitsandbytes", "deep-ep",
}  # fmt: skip
CUDA_NAMES = ("nvidia-", "cuda-", "cupy-cuda")
SLEEPS_SINCE = Version("0.11.1")  # vllm/platforms/interface.py: is_sleep_mode_available
# ray-project/ray issue 52701: on ROCm it asserts when CUDA_VISIBLE_DEVICES alone is set, as verl's Worker sets it.
ASSERTS_ON_ROCM = (Version("2.45"), Version("2.48"))
FIRST_WITH_ZSTD = Version("23.0")  # moby's notes of 23.0; 20.10 says "invalid tar header"


def check_variant(variant: Variant, others: Iterable[Variant] | None = None) -> None:
    """Raise Incompatible with all reasons, and the nearest variants of ``others`` (default: the catalog) that work."""
    if reasons := problems(variant):
        alternatives = _alternatives(variant, Catalog.read().variants.values() if others is None else others)
        raise Incompatible(" ".join([f"{variant.name} cannot work:", *reasons, *alternatives]))


def check_engine(variant: Variant, engine: Mapping[str, Any]) -> None:
    """Raise Incompatible if the daemon of this `docker version` can neither pull the base nor run it."""
    version, machine = str(engine["Version"]), str(engine["Arch"])
    if machine != variant.architecture:
        raise Incompatible(
            f"{variant.name} is for {variant.machine}, the engine of this host is {machine}: build it on a host for "
            f"{variant.machine}, or choose a variant for {machine} (docs/tags.md)."
        )
    if variant.base_layers == "zstd" and Version(version.partition("-")[0].partition("+")[0]) < FIRST_WITH_ZSTD:
        raise Incompatible(
            f"the layers of {variant.base} are compressed with zstd, which needs Docker {FIRST_WITH_ZSTD} or newer; "
            f"the engine of this host is {version}. Name a copy with gzip layers with --base, made for example by "
            "`skopeo copy --dest-compress-format gzip`."
        )


def problems(variant: Variant) -> list[str]:
    """Return the reasons why a variant cannot work, one sentence each."""
    return list(chain.from_iterable(rule(variant) for rule in RULES))


def python_for_verl(variant: Variant) -> Iterator[str]:
    """Requires-Python of the release."""
    required = _release(variant).requires_python
    if required and not required.contains(variant.python):
        verl, python = variant.installs["verl"], variant.python
        yield f"verl {verl} needs Python {required}, the base has {python}{_last_for_python(variant)}."


def python_for_its_code(variant: Variant) -> Iterator[str]:
    """Code that a training runs and this Python cannot: METADATA does not say it (images/pins/verl_python.py)."""
    verl = str(_release(variant).version)
    if lines := verl_releases.unusable(verl, variant.python, variant.rollout):
        yield (
            f"verl {verl}'s METADATA admits Python {variant.python}, the base's, but a training cannot run on it: "
            f"{'; '.join(lines)}{_last_for_python(variant)}."
        )


def ranges_of_verl(variant: Variant) -> Iterator[str]:
    """Ranges of torch, vLLM, SGLang, tensordict, transformers and all else that the release and its extra name."""
    pins = {canonicalize_name(name): Version(version) for name, version in variant.pins.items()}
    excepted = {canonicalize_name(name) for name in variant.outside}
    release = _release(variant)
    ranges = [*verl_releases.ranges(release), *verl_releases.ranges(release, variant.rollout)]
    for name, required in dict.fromkeys(ranges):
        if name in pins and name not in excepted and not required.contains(pins[name], prereleases=True):
            yield f"verl {variant.installs['verl']} requires {name} {required}, this variant has {pins[name]}."


def vllm_that_verl_knows(variant: Variant) -> Iterator[str]:
    """verl/third_party/vllm/__init__.py at v0.3.0.post1 to v0.4.1 raises on versions that it does not know."""
    verl, vllm = Version(variant.installs["verl"]), variant.pins.get("vllm")
    if not vllm or not Version("0.3.0.post1") <= verl <= Version("0.4.1"):
        return
    # v0.3.0.post1 compares whole strings, among them "0.6.3+rocm624"; v0.4.1 compares only the beginning.
    if vllm.split("+")[0] not in ("0.5.4", "0.6.3") and Version(vllm) < Version("0.7.0"):
        yield (
            f"verl {verl} works with vLLM 0.5.4, 0.6.3 or >=0.7 and raises on the base's {vllm}: declare "
            "`replaces.vllm` in images/catalog.toml with a commit of such a version (0.6.3 is "
            "fd47e57f4b0d5f7920903490bce13bc9e49d8dba)."
        )


def sleep_mode_on_rocm(variant: Variant) -> Iterator[str]:
    """verl makes vLLM sleep while it trains, which vLLM does on ROCm since its release 0.11.1 of 2025-11-19.

    verl 0.4 has another way for vLLM 0.6.3, `vllm_mode` customized. AMD's image with an "0.11.1" of 2025-10-24 is older
    than the release, so that version needs a source, too.
    """
    vllm = variant.pins.get("vllm")
    if variant.platform != "rocm" or variant.rollout != "vllm" or not vllm or variant.sleep_mode:
        return
    customized = Version(variant.installs["verl"]) < Version("0.5.0") and vllm.split("+")[0] in ("0.5.4", "0.6.3")
    if not customized and Version(vllm.split("+")[0]) <= SLEEPS_SINCE:
        yield (
            f"The base's vLLM {vllm} has no sleep mode on ROCm, with which verl {variant.installs['verl']} starts it: "
            f"vLLM has it since its release {SLEEPS_SINCE} of 2025-11-19, and builds of that name are older. Take a "
            "newer base, or name the source that says that this vLLM has it as `sleep_mode` in images/catalog.toml."
        )


def ray_for_the_toolkit(variant: Variant) -> Iterator[str]:
    """verl_node supports Ray from 2.40, and Ray 2.45 to 2.47 does not work with verl on ROCm."""
    ray, (first, mended) = Version(variant.installs["ray"]), ASSERTS_ON_ROCM
    if ray < Version("2.40"):
        yield f"Ray {ray} is older than 2.40."
    if variant.platform == "rocm" and first <= ray < mended:
        yield (
            f"Ray {ray} ends verl's workers on ROCm: it asserts when CUDA_VISIBLE_DEVICES is set without "
            "HIP_VISIBLE_DEVICES, as verl's workers set it (ray issue 52701). "
            f"Take Ray {mended} or later, or one before {first}."
        )


def cuda_on_rocm(variant: Variant) -> Iterator[str]:
    """Packages of an index are built for CUDA, and would replace those that the base was built with."""
    if variant.platform != "rocm":
        return
    for name in map(canonicalize_name, variant.installs):
        if name in BUILT_FOR_CUDA or name.startswith(CUDA_NAMES):
            yield f"{name} of an index is built for CUDA: leave it to the ROCm base, or build it by `replaces.{name}`."


RULES: tuple[Callable[[Variant], Iterator[str]], ...] = (
    python_for_verl,
    python_for_its_code,
    ranges_of_verl,
    vllm_that_verl_knows,
    sleep_mode_on_rocm,
    ray_for_the_toolkit,
    cuda_on_rocm,
)


def _last_for_python(variant: Variant) -> str:
    """Name the last release that runs on the variant's Python."""
    python, rollout = variant.python, variant.rollout
    admitted = [each for each in verl_releases.known() if verl_releases.admits(each, python)]
    fits = [each for each in admitted if not verl_releases.unusable(each, python, rollout)]
    return f"; verl {max(fits, key=Version)} is the last one for it" if fits else ""


def _release(variant: Variant) -> Metadata:
    """Metadata of the variant's release; of the last release before it for a checkout or commit."""
    verl = variant.installs["verl"]
    if not variant.source:
        return verl_releases.release(verl)
    known = sorted(verl_releases.known(), key=Version)
    older = [each for each in known if Version(each) <= Version(verl)]
    return verl_releases.release(older[-1] if older else known[0])


def _alternatives(variant: Variant, others: Iterable[Variant]) -> Iterator[str]:
    """Name the nearest variants that work: this verl on another base, and another verl on this base."""
    work = [each for each in others if not problems(each)]
    verl = variant.installs["verl"]
    same_verl = [each for each in work if each.installs["verl"] == verl]
    same_verl.sort(key=lambda each: (each.platform != variant.platform, each.rollout != variant.rollout))
    if same_verl:
        yield f"verl {verl} works in the variant {same_verl[0].name} ({same_verl[0].summary})."
    if same_base := [each for each in work if each.base == variant.base]:
        yield f"On this base the variant {same_base[0].name} works, with verl {same_base[0].installs['verl']}."
