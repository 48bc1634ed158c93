"""Impossible variants are refused before anything starts; the reason names a variant that works."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from images.builds import build
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.catalog.compatibility import check_engine, check_variant, problems
from images.catalog.variant import Variant
from images.errors import CatalogError, Incompatible

CATALOG = Catalog.read()
ROCM = CATALOG.variants["rocm6.2"]


def rocm(*, replaced: str = "0.6.3", **installs: str) -> Variant:
    """The ROCm variant with other versions; ``replaced`` is the version of its own vLLM, or empty."""
    new = {"vllm": replace(ROCM.replaces["vllm"], version=replaced)} if replaced else {}
    return replace(ROCM, replaces=new, installs={**ROCM.installs, **installs})


def test_every_variant_of_the_catalog_is_compatible() -> None:
    for variant in CATALOG.variants.values():
        check_variant(variant)


def test_vllm_0_6_4_of_the_base_is_refused_unless_replaced() -> None:
    check_variant(ROCM)

    with pytest.raises(Incompatible, match=r"raises on the base's 0\.6\.4: declare `replaces\.vllm`"):
        check_variant(rocm(replaced=""))


@pytest.mark.parametrize("version", ["0.5.4", "0.6.3", "0.6.3+rocm624", "0.7.0", "0.8.5"])
def test_versions_of_vllm_that_verl_0_4_supports_are_accepted(version: str) -> None:
    check_variant(replace(rocm(replaced=version), sleep_mode="a source"))


@pytest.mark.parametrize("version", ["0.8.5", "0.11.0", "0.11.1"])
def test_vllm_without_a_sleep_mode_on_rocm_is_refused(version: str) -> None:
    variant = replace(CATALOG.variants["rocm7.0-amd"], has={"torch": "2.9.0", "vllm": version})

    assert not [reason for reason in problems(variant) if "sleep mode" in reason]
    with pytest.raises(Incompatible, match=rf"The base's vLLM {version} has no sleep mode on ROCm"):
        check_variant(replace(variant, sleep_mode=""))


def test_vllm_after_0_11_1_and_the_customized_mode_of_verl_0_4_need_no_source() -> None:
    patched = replace(CATALOG.variants["rocm7.0-amd"], sleep_mode="")
    for base in (ROCM, replace(patched, has={"vllm": "0.11.2"}), replace(patched, rollout="sglang")):
        assert not [reason for reason in problems(base) if "sleep mode" in reason]


def test_code_that_the_bases_python_cannot_run_is_refused_though_the_metadata_admits_it() -> None:
    with pytest.raises(Incompatible) as refused:
        check_variant(rocm(verl="0.4.1"))

    message = str(refused.value)
    assert "verl 0.4.1's METADATA admits Python 3.9, the base's, but a training cannot run on it: " in message
    assert "verl/workers/actor/dp_actor.py:316: `Tuple[list, list | None]` needs Python 3.10, at each call" in message
    assert "; verl 0.4.0 is the last one for it." in message
    assert not [reason for reason in problems(replace(rocm(verl="0.4.1"), python="3.10")) if "cannot run" in reason]


@pytest.mark.parametrize("name", ["rocm6.2", "rocm7.0.2"])
def test_ray_2_45_to_2_47_is_refused_on_rocm_for_every_verl(name: str) -> None:
    variant = CATALOG.variants[name]
    for ray, accepted in (("2.44.1", True), ("2.45.0", False), ("2.47.1", False), ("2.48.0", True)):
        reasons = problems(replace(variant, installs={**variant.installs, "ray": ray}))
        assert [f"Ray {ray} ends verl's workers" in reason for reason in reasons] == ([] if accepted else [True])
    cuda = CATALOG.variants["cu130"]
    assert not problems(replace(cuda, installs={**cuda.installs, "ray": "2.47.1"}))


@pytest.mark.parametrize("version", ["0.6.2", "0.6.4", "0.6.6", "0.5.5"])
def test_versions_of_vllm_that_verl_0_4_raises_on_are_refused(version: str) -> None:
    with pytest.raises(Incompatible, match="works with vLLM 0"):
        check_variant(rocm(replaced=version))


def test_every_exception_of_the_catalog_is_needed_by_a_variant() -> None:
    declared = {
        (variant.family, variant.installs["verl"], name)
        for variant in CATALOG.variants.values()
        for name in variant.outside
    }
    needed = set()
    for variant in CATALOG.variants.values():
        for reason in problems(replace(variant, outside={})):
            needed.add((variant.family, variant.installs["verl"], reason.partition(" requires ")[2].split()[0]))

    assert declared == needed


def test_unsupported_python_is_refused_with_alternatives() -> None:
    with pytest.raises(Incompatible) as refused:
        check_variant(rocm(verl="0.5.0", tensordict="0.9.1"))

    message = str(refused.value)
    assert "verl 0.5.0 needs Python >=3.10, the base has 3.9; verl 0.4.0 is the last one for it." in message
    assert "verl 0.5.0 works in the variant cu12-vllm0.8 " in message
    assert message.endswith("On this base the variant rocm6.2 works, with verl 0.4.0.")


def test_suggested_variant_is_compatible() -> None:
    with pytest.raises(Incompatible, match=r"works in the variant (\S+) ") as refused:
        check_variant(replace(CATALOG.variants["cpu"], python="3.13"))

    named = str(refused.value).partition("works in the variant ")[2].split()[0]
    check_variant(CATALOG.variants[named])


@pytest.mark.parametrize(
    ("variant", "changed", "message"),
    [
        ("cpu", {"python": "3.13"}, r"needs Python <3\.13,>=3\.10, the base has 3\.13"),
        (
            "cu130",
            {"has": {"torch": "2.9.1", "vllm": "0.24.0"}},
            r"requires torch ==2\.11\.0, this variant has 2\.9\.1",
        ),
        (
            "cu130",
            {"has": {"torch": "2.11.0", "vllm": "0.20.2"}},
            r"requires vllm ==0\.24\.0, this variant has 0\.20\.2",
        ),
        ("rocm7.0-amd", {"has": {"torch": "2.9.0", "vllm": "0.12.0"}}, r"requires vllm <=0\.11\.0,>=0\.8\.5"),
        (
            "cu130-sgl",
            {"has": {"torch": "2.11.0", "sglang": "0.5.9"}},
            r"requires sglang ==0\.5\.12, this variant has 0\.5\.9",
        ),
    ],
)
def test_base_outside_the_ranges_of_verls_metadata_is_refused(
    variant: str, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(Incompatible, match=message):
        check_variant(replace(CATALOG.variants[variant], **changed))


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("tensordict", "0.9.0", r"requires tensordict !=0\.9\.0,<=0\.10\.0,>=0\.8\.0, this variant has 0\.9\.0"),
        ("transformers", "5.12.0", r"requires transformers .*<5\.11"),
    ],
)
def test_pin_outside_the_ranges_of_verls_metadata_is_refused(name: str, version: str, message: str) -> None:
    variant = CATALOG.variants["cpu"]

    with pytest.raises(Incompatible, match=message):
        check_variant(replace(variant, installs={**variant.installs, name: version}))


@pytest.mark.parametrize("name", ["torch", "vllm", "flash-attn", "nvidia-nccl-cu13", "cupy-cuda12x", "Flash_Attn"])
def test_wheel_built_for_cuda_is_refused_on_rocm(name: str) -> None:
    variant = CATALOG.variants["rocm7.14"]

    with pytest.raises(Incompatible, match="is built for CUDA: leave it to the ROCm base"):
        check_variant(replace(variant, installs={**variant.installs, name: "1.0"}))


def test_no_engine_is_queried_for_an_incompatible_variant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\n')
    docker.chmod(0o755)
    monkeypatch.setenv("VERLJOB_DOCKER", str(docker))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")

    with pytest.raises(Incompatible):
        build.build(build.BuildRequest(rocm(verl="0.9.1"), ["n:1"]), Site.read("", {}))

    assert not (tmp_path / "called").exists()


def test_missing_metadata_of_a_release_names_the_fix() -> None:
    with pytest.raises(CatalogError, match=r"verl-9\.9\.9\.txt is missing: `invoke image.pins --update`"):
        check_variant(rocm(verl="9.9.9"))


def test_ray_unsupported_by_the_toolkit_is_refused() -> None:
    with pytest.raises(Incompatible, match=r"older than 2\.40"):
        check_variant(rocm(ray="2.39.0"))


def test_error_has_all_reasons() -> None:
    with pytest.raises(Incompatible, match=r"(?s)needs Python.*older than 2\.40"):
        check_variant(rocm(verl="0.9.1", ray="2.10.0"))


def test_zstd_layers_are_refused_for_an_engine_without_zstd() -> None:
    variant = replace(CATALOG.variants["cu130"], base_layers="zstd")

    for version in ("23.0.0", "28.2.2", "24.0.7-ce"):
        check_engine(variant, {"Version": version, "Arch": "amd64"})
    with pytest.raises(
        Incompatible, match=r"needs Docker 23\.0 or newer; the engine of this host is 20\.10\.24\+dfsg1"
    ):
        check_engine(variant, {"Version": "20.10.24+dfsg1", "Arch": "amd64"})
    check_engine(CATALOG.variants["cu130"], {"Version": "20.10.24+dfsg1", "Arch": "amd64"})


def test_variant_for_another_machine_than_the_engines_is_refused() -> None:
    with pytest.raises(Incompatible, match="cpu-aarch64 is for aarch64, the engine of this host is amd64"):
        check_engine(CATALOG.variants["cpu-aarch64"], {"Version": "28.0", "Arch": "amd64"})
    check_engine(CATALOG.variants["cpu-aarch64"], {"Version": "28.0", "Arch": "arm64"})
