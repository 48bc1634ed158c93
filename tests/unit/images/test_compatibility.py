"""Impossible pairs are refused before a build; the reason names a pair that works."""

from __future__ import annotations

from dataclasses import replace

import pytest

from images.catalog import Catalog
from images.compatibility import refuse_impossible
from images.errors import Incompatible
from images.spec import ImageSpec

CATALOG = Catalog.read()
ROCM = CATALOG.variants["rocm6.2"]


def rocm(*, replaced: str = "0.6.3", **installs: str) -> ImageSpec:
    """The ROCm variant with other versions; ``replaced`` is the vLLM that it ends up with, or nothing."""
    new = {"vllm": replace(ROCM.replaces["vllm"], version=replaced)} if replaced else {}
    return replace(ROCM, replaces=new, installs={**ROCM.installs, **installs})


@pytest.mark.parametrize("spec", CATALOG.variants.values(), ids=list(CATALOG.variants))
def test_every_variant_of_the_catalog_is_possible(spec: ImageSpec) -> None:
    refuse_impossible(spec)


@pytest.mark.parametrize("verl", ["0.3.0.post1", "0.4.0", "0.4.1"])
def test_vllm_0_6_4_of_the_base_is_refused_unless_it_is_replaced(verl: str) -> None:
    refuse_impossible(rocm(verl=verl))

    with pytest.raises(Incompatible, match=r"raises on the base's 0\.6\.4: declare `replaces\.vllm`"):
        refuse_impossible(rocm(verl=verl, replaced=""))


@pytest.mark.parametrize("version", ["0.5.4", "0.6.3", "0.6.3+rocm624", "0.7.0", "0.8.5"])
def test_the_versions_of_vllm_that_verl_0_4_takes_are_possible(version: str) -> None:
    refuse_impossible(rocm(replaced=version))


@pytest.mark.parametrize("version", ["0.6.2", "0.6.4", "0.6.6", "0.5.5"])
def test_the_versions_of_vllm_that_verl_0_4_raises_on_are_refused(version: str) -> None:
    with pytest.raises(Incompatible, match="takes vLLM 0"):
        refuse_impossible(rocm(replaced=version))


def test_verl_0_5_is_refused_on_python_3_9() -> None:
    with pytest.raises(Incompatible, match=r"needs Python 3\.10.*verl 0\.4\.1 is the last"):
        refuse_impossible(rocm(verl="0.5.0"))


def test_verl_0_9_is_refused_on_python_3_13() -> None:
    with pytest.raises(Incompatible, match=r"below 3\.13"):
        refuse_impossible(replace(CATALOG.variants["cpu"], python="3.13"))


@pytest.mark.parametrize(("ray", "reason"), [("2.39.0", "older than 2.40"), ("2.45.0", "refuses ROCR_VISIBLE_DEVICES")])
def test_a_ray_that_the_toolkit_or_rocm_cannot_use_is_refused(ray: str, reason: str) -> None:
    with pytest.raises(Incompatible, match=reason):
        refuse_impossible(rocm(ray=ray))


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(Incompatible, match=r"(?s)needs Python.*older than 2\.40"):
        refuse_impossible(rocm(verl="0.9.1", ray="2.10.0"))
