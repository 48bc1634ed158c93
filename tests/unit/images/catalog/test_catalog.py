"""The catalog: what it must say, and what it refuses to say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from images.catalog.catalog import Catalog
from images.errors import CatalogError, UnknownVariant
from images.host import paths
from images.pins.locks import locked

CATALOG = Catalog.read()
VARIANTS = list(CATALOG.variants.values())


def test_every_variant_says_where_its_versions_were_read_to_fit() -> None:
    for variant in VARIANTS:
        assert variant.sources
        assert all(len(source) > 40 for source in variant.sources)


def test_every_variant_names_base_python_torch_ray_verl_and_its_rollout_engine() -> None:
    for variant in VARIANTS:
        assert re.search(r"^docker\.io/.+:.+", variant.base)
        assert {"python", "torch", "ray", "verl"} <= set(variant.pins)
        assert variant.rollout == "hf" or {variant.rollout, f"{variant.rollout}-cpu"} & set(variant.pins)


def test_torch_is_protected_in_every_variant() -> None:
    for variant in VARIANTS:
        assert "torch" in variant.guarded


def test_a_lock_agrees_with_the_pins_of_the_catalog() -> None:
    for variant in VARIANTS:
        pins = {canonicalize_name(name): version for name, version in variant.installs.items() if name != "torch"}

        assert {name: locked(variant)[name] for name in pins} == pins


def test_a_lock_holds_nothing_of_the_base_and_nothing_of_cuda() -> None:
    for variant in VARIANTS:
        names = set(locked(variant))

        assert not names & {"torch", *variant.guarded, *variant.replaces}
        assert not [name for name in names if name.startswith(("nvidia-", "cuda-", "triton"))]


def edited(folder: Path, text: str, instead: str, times: int = 1) -> Catalog:
    """The catalog read again after an edit."""
    before = paths.CATALOG.read_text(encoding="utf-8")
    assert text in before
    (folder / "catalog.toml").write_text(before.replace(text, instead, times), encoding="utf-8")
    return Catalog.read(folder / "catalog.toml")


def test_a_platform_means_its_default_variant() -> None:
    assert {name: CATALOG.find(name).name for name in CATALOG.defaults} == CATALOG.defaults
    assert CATALOG.find("rocm").base == "docker.io/rocm/vllm:rocm6.2_mi300_ubuntu20.04_py3.9_vllm_0.6.4"


def test_a_rollout_engine_chooses_among_the_variants_of_a_platform() -> None:
    assert CATALOG.find("cpu", rollout="vllm").name == "cpu-vllm"
    assert CATALOG.find("cpu", rollout="hf").name == "cpu"
    assert CATALOG.find("cuda", rollout="sglang").name == "cu130-sgl"


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"platform": "tpu"}, "it has: cpu, cuda, rocm"),
        ({"variant": "rocm6.1"}, "it has: rocm6.2, rocm6.3, rocm6.4"),
        ({"platform": "cpu", "variant": "h100"}, "it has: cpu, cpu-vllm"),
        ({"platform": "cpu", "rollout": "sglang"}, "cpu with hf, cpu with vllm"),
        ({}, "without --platform and --variant"),
    ],
)
def test_an_unknown_image_ends_with_the_list_of_those_there_are(asked: dict[str, str], told: str) -> None:
    with pytest.raises(UnknownVariant, match=re.escape(told)):
        CATALOG.find(**asked)


def test_a_misspelt_key_stops_and_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"rocm6\.2 has unknown keys: sumary"):
        edited(tmp_path, "summary = ", "sumary = ")


def test_a_missing_key_stops_and_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"rocm6\.2.*summary"):
        edited(tmp_path, 'summary = "AMD Instinct MI200 and MI300, ROCm 6.2"\n', "")


@pytest.mark.parametrize(
    ("text", "instead", "told"),
    [
        ('kind = "rocm"', 'kind = "rock"', r"families\.rocm6\.2 has kind 'rock'; there are: rocm, cuda, cpu"),
        ('verl = ["0.4.1", "0.4.0"]', "verl = []", r"families\.rocm6\.2 has no verl"),
        ('verl = ["0.4.1", "0.4.0"]', 'verl = ["0.4.7"]', r"verl 0\.4\.7, which has no table under releases"),
        ('for = { "0.4.1"', 'for = { "0.4.7"', r"families\.rocm6\.3\.for names releases .*0\.4\.7"),
        ("[releases.", "[release.", "lacks releases"),
        ("[defaults]", "[defaults", "catalog.toml: "),
    ],
)
def test_a_mistake_in_the_catalog_is_told_where_it_is(tmp_path: Path, text: str, instead: str, told: str) -> None:
    with pytest.raises(CatalogError, match=told):
        edited(tmp_path, text, instead, times=-1 if text == "[releases." else 1)


def test_a_cell_is_named_for_what_it_has_other_than_the_first_of_its_family() -> None:
    assert list(CATALOG.variants)[:3] == ["rocm6.2", "rocm6.2-gfx90a", "rocm6.2-gfx942"]
    assert CATALOG.variants["rocm6.2-gfx942-verl0.4.0"].tag == "0.4.0-rocm6.2-gfx942"
    assert CATALOG.variants["cpu-aarch64"].machine == "aarch64"
    assert CATALOG.variants["rocm7.14-sglang"].rollout == "sglang"


def test_what_a_family_says_goes_before_what_its_release_and_its_kind_say() -> None:
    assert CATALOG.variants["cu12-vllm0.11"].installs["ray"] == "2.54.1"
    assert CATALOG.variants["rocm6.3"].installs["ray"] == "2.46.0"
    assert CATALOG.variants["rocm6.3-verl0.4.1"].installs["ray"] == "2.43.0"
    assert CATALOG.variants["rocm6.2"].python == "3.9"


def test_an_empty_version_drops_what_is_inherited() -> None:
    assert "msgspec" in CATALOG.variants["cpu"].installs
    assert "msgspec" not in CATALOG.variants["cpu-vllm"].installs


def test_the_matrix_spans_the_platforms_the_releases_and_the_engines() -> None:
    variants = CATALOG.variants.values()

    assert len(variants) >= 60
    assert {variant.family.partition(".")[0][:5] for variant in variants} >= {"rocm6", "rocm7", "cu12-", "cu130", "cpu"}
    assert {variant.rollout for variant in variants} == {"vllm", "sglang", "hf"}
    assert {variant.machine for variant in variants} == {"x86_64", "aarch64"}
    assert len({variant.installs["verl"] for variant in variants}) >= 9


def test_a_bump_of_a_version_is_one_line_for_all_cells_that_have_it(tmp_path: Path) -> None:
    bumped = edited(tmp_path, 'ray = "2.60.0"\ntransformers = "5.9.0"\n', 'ray = "2.60.1"\ntransformers = "5.9.0"\n')

    changed = [name for name, variant in CATALOG.variants.items() if bumped.variants[name] != variant]
    assert changed == [name for name, variant in CATALOG.variants.items() if variant.installs["verl"] == "0.9.1"]


def test_a_default_that_is_no_variant_stops() -> None:
    with pytest.raises(CatalogError, match=r"defaults\.cpu"):
        Catalog(CATALOG.variants, {"cpu": "cu130"})


def test_the_replaced_vllm_is_one_commit_by_its_whole_hash() -> None:
    assert re.fullmatch("[0-9a-f]{40}", CATALOG.variants["rocm6.2"].replaces["vllm"].commit)
