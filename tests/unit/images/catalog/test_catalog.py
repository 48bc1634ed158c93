"""Catalog: required facts of every variant, expansion of families, refusal of mistakes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from images.catalog.catalog import Catalog
from images.catalog.variant import State
from images.errors import CatalogError, Incompatible, UnknownVariant
from images.host import paths
from images.pins.locks import locked

CATALOG = Catalog.read()
VARIANTS = list(CATALOG.variants.values())


def test_every_variant_has_sources_for_its_versions() -> None:
    for variant in VARIANTS:
        assert variant.sources
        assert all(len(source) > 40 for source in variant.sources)


def test_every_variant_names_base_python_torch_ray_verl_and_rollout_engine() -> None:
    for variant in VARIANTS:
        assert re.search(r"^docker\.io/.+:.+", variant.base)
        assert {"python", "torch", "ray", "verl"} <= set(variant.pins)
        assert variant.rollout == "hf" or {variant.rollout, f"{variant.rollout}-cpu"} & set(variant.pins)


def test_torch_is_protected_in_every_variant() -> None:
    for variant in VARIANTS:
        assert "torch" in variant.guarded


def test_locks_agree_with_the_pins_of_the_catalog() -> None:
    for variant in VARIANTS:
        pins = {canonicalize_name(name): version for name, version in variant.installs.items() if name != "torch"}

        assert {name: locked(variant)[name] for name in pins} == pins


def test_locks_have_no_package_of_the_base_or_of_cuda() -> None:
    for variant in VARIANTS:
        names = set(locked(variant))
        of_cuda = [name for name in names if name.startswith(("nvidia-", "cuda-", "triton"))]

        if variant.from_wheels:
            assert {"torch", "vllm", "triton", "nvidia-cudnn-cu13"} <= names
        else:
            assert not names & {"torch", *variant.guarded, *variant.replaces}
            assert not of_cuda


def edited(folder: Path, old: str, new: str, times: int = 1) -> Catalog:
    """Read the catalog after an edit."""
    before = paths.CATALOG.read_text(encoding="utf-8")
    assert old in before
    (folder / "catalog.toml").write_text(before.replace(old, new, times), encoding="utf-8")
    return Catalog.read(folder / "catalog.toml")


def test_platform_alone_selects_its_default_variant() -> None:
    assert {name: CATALOG.find(name).name for name in CATALOG.defaults} == CATALOG.defaults
    assert CATALOG.find("rocm").base == "docker.io/rocm/vllm:rocm6.2_mi300_ubuntu20.04_py3.9_vllm_0.6.4"


def test_rollout_engine_selects_a_variant_of_the_platform() -> None:
    assert CATALOG.find("cpu", rollout="vllm").name == "cpu-vllm"
    assert CATALOG.find("cpu", rollout="hf").name == "cpu"
    assert CATALOG.find("cuda", rollout="sglang").name == "cu130-sgl"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"platform": "tpu"}, "it has: cpu, cuda, rocm"),
        ({"variant": "rocm6.1"}, "it has: rocm10, rocm6.2, rocm7.14"),
        ({"variant": "rocm6.2-gfx942"}, "The GPU architecture is a flag: --variant rocm6.2 --gpus gfx942"),
        ({"variant": "rocm7.0-gfx942-verl0.7.1"}, "rocm7.0-amd, "),
        ({"platform": "cpu", "variant": "h100"}, "it has: cpu, cpu-vllm"),
        ({"platform": "cpu", "rollout": "sglang"}, "cpu with hf, cpu with vllm"),
        ({}, "without --platform and --variant"),
    ],
)
def test_error_for_an_unknown_image_lists_the_known_ones(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(UnknownVariant, match=re.escape(message)):
        CATALOG.find(**arguments)


def test_unknown_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"rocm6\.2 has unknown keys: sumary"):
        edited(tmp_path, "summary = ", "sumary = ")


def test_missing_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"rocm6\.2.*summary"):
        edited(tmp_path, 'summary = "AMD Instinct MI200 and MI300, ROCm 6.2"\n', "")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('kind = "rocm"', 'kind = "rock"', r"families\.rocm6\.2 has kind 'rock'; known are: rocm, cuda, cpu"),
        ('verl = ["0.4.0"]', "verl = []", r"families\.rocm6\.2 has no verl"),
        ('verl = ["0.4.0"]', 'verl = ["0.4.7"]', r"verl 0\.4\.7, which has no table under releases"),
        (
            "families.cpu.for.aarch64",
            "families.cpu.for.riscv64",
            r"families\.cpu\.for names releases or machines .*riscv64",
        ),
        ('kind = "others"', 'kind = "hoped"', "state 'hoped' is not one of ran, others, reasoned"),
        ("[releases.", "[release.", "has no releases"),
        ("[defaults]", "[defaults", "catalog.toml: "),
    ],
)
def test_mistake_in_the_catalog_is_named_with_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(CatalogError, match=message):
        edited(tmp_path, old, new, times=-1 if old == "[releases." else 1)


def test_name_of_a_variant_has_what_differs_from_the_first_of_its_family() -> None:
    assert list(CATALOG.variants)[:2] == ["rocm6.2", "rocm6.2-prebuilt"]
    assert CATALOG.variants["rocm6.2"].tag == "0.4.0-rocm6.2"
    assert CATALOG.variants["cpu-aarch64"].machine == "aarch64"


def test_family_overrides_release_and_kind() -> None:
    assert CATALOG.variants["cu12-vllm0.17"].installs["ray"] == "2.54.1"
    assert CATALOG.variants["rocm7.0.2-amd"].installs["ray"] == "2.55.1"
    assert CATALOG.variants["cu13-vllm0.20"].installs["ray"] == "2.54.1"
    assert CATALOG.variants["cu12-vllm0.11"].installs["ray"] == "2.52.1"
    assert CATALOG.variants["rocm6.2"].python == "3.9"


def test_machine_overrides_the_family_and_its_state_is_not_merged() -> None:
    assert CATALOG.variants["cpu"].state.kind == "ran"
    assert CATALOG.variants["cpu-aarch64"].state.kind == "reasoned"
    assert CATALOG.variants["cpu-aarch64"].state.date == ""


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"kind": "ran", "what": "main_ppo on two nodes", "machine": "a laptop"}, "needs the `date`"),
        ({"kind": "ran", "what": "main_ppo on two nodes", "date": "2026-11", "machine": "a laptop"}, "YYYY-MM-DD"),
        ({"kind": "ran", "what": "main_ppo on two nodes", "date": "2026-11-24"}, "and the `machine`"),
        ({"kind": "ran", "what": "yes", "date": "2026-11-24", "machine": "a laptop"}, "needs `what`, a sentence"),
        ({"kind": "others", "what": "verl's CI trains in it"}, "needs a `link`"),
        ({"kind": "others", "what": "verl's CI trains in it", "link": "docs/images.md"}, "needs a `link`"),
        ({"kind": "reasoned", "what": ""}, "needs `what`, a sentence"),
        ({"kind": "reasoned", "what": 'the "same" torch and vLLM'}, "is a label of a Dockerfile"),
        ({"kind": "reasoned", "what": "the same torch and vLLM as $BASE"}, "is a label of a Dockerfile"),
    ],
)
def test_a_state_without_its_evidence_is_refused(state: dict[str, str], message: str) -> None:
    with pytest.raises(CatalogError, match=message):
        State(**state)


def test_a_page_reports_on_each_variant_that_ran() -> None:
    ran = [variant for variant in VARIANTS if variant.state.kind == "ran"]

    assert {variant.name for variant in ran} == {"cpu", "cpu-vllm", "cu130-wheels"}
    for variant in ran:
        pages = [(paths.ROOT / page).read_text() for page in re.findall(r"docs/\w+\.md", variant.state.what)]
        assert any(re.search(rf"\b{variant.name}\b", page) for page in pages), variant.name


def test_a_build_for_some_gpus_has_their_names_in_its_tag_and_is_not_the_latest() -> None:
    one = CATALOG.find("rocm", gpus="gfx942")

    assert one.targets == ("gfx942",)
    assert CATALOG.names(one) == ["verl.rocm:0.4.0-rocm6.2-gfx942"]
    assert CATALOG.find("rocm", gpus="gfx942,gfx90a") == CATALOG.find("rocm")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"platform": "rocm", "gpus": "gfx950"}, "rocm6.2 has no code for gfx950: --gpus takes gfx90a, gfx942"),
        ({"variant": "rocm7.14", "gpus": "gfx942,mi300"}, "has no code for mi300: --gpus takes gfx942, gfx950"),
        ({"platform": "cuda", "gpus": "sm90"}, "cu130 compiles nothing for a GPU architecture: leave out --gpus"),
        ({"platform": "cpu", "gpus": "gfx942"}, "leave out --gpus"),
    ],
)
def test_unknown_gpus_are_refused_with_the_list(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(Incompatible, match=re.escape(message)):
        CATALOG.find(**arguments)


def test_no_rocm_image_has_ray_2_45_to_2_47() -> None:
    assert not [
        each.name for each in CATALOG.of_platform("rocm") if each.installs["ray"][:4] in ("2.45", "2.46", "2.47")
    ]


def test_advice_of_a_default_names_a_variant() -> None:
    (named,) = re.findall(r"--variant ([\w.-]+)", CATALOG.variants["rocm6.2"].advice)

    assert CATALOG.variants[named].platform == "rocm"
    assert not [each.name for each in VARIANTS if each.advice and not CATALOG.is_default(each)]


def test_a_base_moves_if_its_tag_does_and_no_digest_pins_it() -> None:
    variant = replace(CATALOG.variants["cu12-vllm0.17"], base="docker.io/verlai/verl:vllm012.latest")

    assert variant.base_moves
    assert not replace(variant, base_digest="sha256:" + "1" * 64).base_moves
    assert not [each.name for each in VARIANTS if each.base_moves]


def test_empty_version_drops_an_inherited_package() -> None:
    assert "msgspec" in CATALOG.variants["cpu"].installs
    assert "msgspec" not in CATALOG.variants["cpu-vllm"].installs


def test_catalog_spans_platforms_releases_and_engines() -> None:
    variants = CATALOG.variants.values()

    assert 20 <= len(variants) <= 24
    assert {variant.family.partition(".")[0][:5] for variant in variants} >= {"rocm6", "rocm7", "cu12-", "cu130", "cpu"}
    assert {variant.rollout for variant in variants} == {"vllm", "sglang", "hf"}
    assert {variant.machine for variant in variants} == {"x86_64", "aarch64"}
    assert len({variant.installs["verl"] for variant in variants}) >= 7


def test_version_bump_is_one_line_for_all_variants_with_it(tmp_path: Path) -> None:
    old = '[releases."0.9.1".installs]\nray = "2.55.1"\ntransformers = "5.9.0"\ntensordict = "0.10.0"\n'
    bumped = edited(tmp_path, old, old.replace("0.10.0", "0.10.1"))

    changed = [name for name, variant in CATALOG.variants.items() if bumped.variants[name] != variant]
    assert changed == [name for name, variant in CATALOG.variants.items() if variant.installs["verl"] == "0.9.1"]


def test_default_that_is_no_variant_fails() -> None:
    with pytest.raises(CatalogError, match=r"defaults\.cpu"):
        Catalog(CATALOG.variants, {"cpu": "cu130"})


def test_replaced_vllm_is_a_full_commit_hash() -> None:
    assert re.fullmatch("[0-9a-f]{40}", CATALOG.variants["rocm6.2"].replaces["vllm"].commit)
