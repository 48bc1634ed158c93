"""Impossible variants are refused before anything starts; the reason names a variant that works."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from images.builds import build
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.catalog.compatibility import refuse_engine, refuse_impossible, wrong_with
from images.catalog.variant import Variant
from images.errors import CatalogError, Incompatible

CATALOG = Catalog.read()
ROCM = CATALOG.variants["rocm6.2"]


def rocm(*, replaced: str = "0.6.3", **installs: str) -> Variant:
    """The ROCm variant with other versions; ``replaced`` is the vLLM that it ends up with, or nothing."""
    new = {"vllm": replace(ROCM.replaces["vllm"], version=replaced)} if replaced else {}
    return replace(ROCM, replaces=new, installs={**ROCM.installs, **installs})


def test_every_variant_of_the_catalog_is_possible() -> None:
    for variant in CATALOG.variants.values():
        refuse_impossible(variant)


@pytest.mark.parametrize("verl", ["0.4.0", "0.4.1"])
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


def test_every_exception_of_the_catalog_is_needed_by_a_cell_of_its_family() -> None:
    declared = {
        (variant.family, variant.installs["verl"], name)
        for variant in CATALOG.variants.values()
        for name in variant.outside
    }
    needed = set()
    for variant in CATALOG.variants.values():
        for reason in wrong_with(replace(variant, outside={})):
            needed.add((variant.family, variant.installs["verl"], reason.partition("asks for ")[2].split()[0]))

    assert declared == needed


def test_a_python_that_the_release_does_not_take_is_refused_with_what_works_on_it_and_where_the_release_works() -> None:
    with pytest.raises(Incompatible) as refused:
        refuse_impossible(rocm(verl="0.5.0", tensordict="0.9.1"))

    said = str(refused.value)
    assert "verl 0.5.0 needs Python >=3.10, the base has 3.9; verl 0.4.1 is the last one for it." in said
    assert "verl 0.5.0 works in the variant rocm6.3 " in said
    assert said.endswith("On this base the variant rocm6.2-gfx90a works, with verl 0.4.1.")


def test_what_is_said_to_work_is_itself_possible() -> None:
    with pytest.raises(Incompatible, match=r"works in the variant (\S+) ") as refused:
        refuse_impossible(replace(CATALOG.variants["cpu"], python="3.13"))

    named = str(refused.value).partition("works in the variant ")[2].split()[0]
    refuse_impossible(CATALOG.variants[named])


@pytest.mark.parametrize(
    ("variant", "changed", "told"),
    [
        ("cpu", {"python": "3.13"}, r"needs Python <3\.13,>=3\.10, the base has 3\.13"),
        ("cu130", {"has": {"torch": "2.9.1", "vllm": "0.24.0"}}, r"asks for torch ==2\.11\.0, here it is 2\.9\.1"),
        ("cu130", {"has": {"torch": "2.11.0", "vllm": "0.20.2"}}, r"asks for vllm ==0\.24\.0, here it is 0\.20\.2"),
        ("rocm6.4-vllm0.9", {"has": {"torch": "2.7.0", "vllm": "0.12.0"}}, r"asks for vllm <=0\.11\.0,>=0\.8\.5"),
        (
            "cu130-sgl",
            {"has": {"torch": "2.11.0", "sglang": "0.5.9"}},
            r"asks for sglang ==0\.5\.12, here it is 0\.5\.9",
        ),
    ],
)
def test_a_base_outside_of_the_ranges_of_verls_own_metadata_is_refused(
    variant: str, changed: dict[str, Any], told: str
) -> None:
    with pytest.raises(Incompatible, match=told):
        refuse_impossible(replace(CATALOG.variants[variant], **changed))


@pytest.mark.parametrize(
    ("name", "version", "told"),
    [
        ("tensordict", "0.9.0", r"asks for tensordict !=0\.9\.0,<=0\.10\.0,>=0\.8\.0, here it is 0\.9\.0"),
        ("transformers", "5.12.0", r"asks for transformers .*<5\.11"),
    ],
)
def test_a_pin_outside_of_the_ranges_of_verls_own_metadata_is_refused(name: str, version: str, told: str) -> None:
    variant = CATALOG.variants["cpu"]

    with pytest.raises(Incompatible, match=told):
        refuse_impossible(replace(variant, installs={**variant.installs, name: version}))


@pytest.mark.parametrize("name", ["torch", "vllm", "flash-attn", "nvidia-nccl-cu13", "cupy-cuda12x", "Flash_Attn"])
def test_a_wheel_that_is_built_for_cuda_is_refused_on_rocm(name: str) -> None:
    variant = CATALOG.variants["rocm7.14"]

    with pytest.raises(Incompatible, match="is built for CUDA: leave it to the ROCm base"):
        refuse_impossible(replace(variant, installs={**variant.installs, name: "1.0"}))


def test_no_engine_is_asked_for_anything_where_a_cell_is_impossible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\n')
    docker.chmod(0o755)
    monkeypatch.setenv("VERLJOB_DOCKER", str(docker))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")

    with pytest.raises(Incompatible):
        build.build(build.BuildRequest(rocm(verl="0.9.1"), ["n:1"]), Site.read("", {}))

    assert not (tmp_path / "called").exists()


def test_a_release_whose_metadata_is_not_kept_ends_with_how_to_get_it() -> None:
    with pytest.raises(CatalogError, match=r"verl-9\.9\.9\.txt is missing: `invoke image.pins --update`"):
        refuse_impossible(rocm(verl="9.9.9"))


@pytest.mark.parametrize(("ray", "reason"), [("2.39.0", "older than 2.40"), ("2.45.0", "refuses ROCR_VISIBLE_DEVICES")])
def test_a_ray_that_the_toolkit_or_rocm_cannot_use_is_refused(ray: str, reason: str) -> None:
    with pytest.raises(Incompatible, match=reason):
        refuse_impossible(rocm(ray=ray))


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(Incompatible, match=r"(?s)needs Python.*older than 2\.40"):
        refuse_impossible(rocm(verl="0.9.1", ray="2.10.0"))


def test_a_base_with_layers_of_zstd_is_refused_by_an_engine_that_cannot_read_them() -> None:
    variant = replace(CATALOG.variants["cu130"], base_layers="zstd")

    for version in ("23.0.0", "28.2.2", "24.0.7-ce"):
        refuse_engine(variant, {"Version": version, "Arch": "amd64"})
    with pytest.raises(Incompatible, match=r"reads from 23\.0 on; the engine here is 20\.10\.24\+dfsg1"):
        refuse_engine(variant, {"Version": "20.10.24+dfsg1", "Arch": "amd64"})
    refuse_engine(CATALOG.variants["cu130"], {"Version": "20.10.24+dfsg1", "Arch": "amd64"})


def test_a_cell_of_another_machine_than_the_engines_is_refused() -> None:
    with pytest.raises(Incompatible, match="cpu-aarch64 is for aarch64, the engine here is amd64"):
        refuse_engine(CATALOG.variants["cpu-aarch64"], {"Version": "28.0", "Arch": "amd64"})
    refuse_engine(CATALOG.variants["cpu-aarch64"], {"Version": "28.0", "Arch": "arm64"})
