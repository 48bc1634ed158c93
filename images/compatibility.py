"""Pairs that cannot work, refused before a build starts. A rule answers with a sentence, or with nothing."""

from __future__ import annotations

from collections.abc import Callable

from packaging.version import Version

from images.errors import Incompatible
from images.spec import ImageSpec


def refuse_impossible(spec: ImageSpec) -> None:
    """Raise Incompatible with everything that is wrong with the variant."""
    if reasons := [reason for rule in RULES if (reason := rule(spec))]:
        raise Incompatible(f"{spec.variant} cannot work: " + " ".join(reasons))


def python_for_verl(spec: ImageSpec) -> str:
    """verl's pyproject.toml: >=3.8 up to v0.4.1, >=3.10 from v0.5.0; 0.9's METADATA adds <3.13."""
    verl, python = Version(spec.installs["verl"]), Version(spec.python)
    if verl >= Version("0.5.0") and python < Version("3.10"):
        return f"verl {verl} needs Python 3.10, the base has {python}; verl 0.4.1 is the last one for it."
    if verl >= Version("0.9.0") and python >= Version("3.13"):
        return f"verl {verl} needs a Python below 3.13, the base has {python}."
    return ""


def vllm_for_verl(spec: ImageSpec) -> str:
    """verl/third_party/vllm/__init__.py at v0.3.0.post1 to v0.4.1 raises on what it does not know."""
    verl, vllm = Version(spec.installs["verl"]), spec.pins.get("vllm")
    if not vllm or not Version("0.3.0.post1") <= verl <= Version("0.4.1"):
        return ""
    # v0.3.0.post1 compares whole strings, among them "0.6.3+rocm624"; v0.4.1 looks at the beginning alone.
    if vllm.split("+")[0] in ("0.5.4", "0.6.3") or Version(vllm) >= Version("0.7.0"):
        return ""
    return (
        f"verl {verl} takes vLLM 0.5.4, 0.6.3 or >=0.7 and raises on the base's {vllm}: declare `replaces.vllm` in "
        "images/catalog.toml with a commit that it takes (0.6.3 is fd47e57f4b0d5f7920903490bce13bc9e49d8dba)."
    )


def ray_for_the_toolkit(spec: ImageSpec) -> str:
    """verl_node knows Ray from 2.40 on; Ray from 2.45 on refuses ROCR_VISIBLE_DEVICES, which verl before 0.5 sets."""
    ray, verl = Version(spec.installs["ray"]), Version(spec.installs["verl"])
    if ray < Version("2.40"):
        return f"Ray {ray} is older than 2.40."
    if spec.platform == "rocm" and verl < Version("0.5.0") and ray >= Version("2.45"):
        return f"Ray {ray} refuses ROCR_VISIBLE_DEVICES, and verl {verl}'s own ROCm image pins ray<2.45."
    return ""


RULES: tuple[Callable[[ImageSpec], str], ...] = (python_for_verl, vllm_for_verl, ray_for_the_toolkit)
