"""Every base's own variables, held against the checks of a node: none may fail on a base without changes."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest
from verl_node import checks
from verl_node.checks.node import gpus, vllm
from verl_node.gpu.status import GpuState
from verl_node.settings.settings import Settings

from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.pins import base_packages

QUICK = [check for check in checks.CHECKS if not check.deep]
BASES = {base.image: base for base in base_packages.read().values()}
VARIANTS = {each.name: each for each in Catalog.read().variants.values() if each.base in BASES}
GPUS = 8


def failing(variant: Variant, environment: Mapping[str, str]) -> set[str]:
    """The checks that fail with these variables of the image."""
    settings = Settings.from_env({"VERLJOB_PLATFORM": variant.platform, "HOME": os.environ["HOME"], **environment})
    return {check.name for check in QUICK if check(settings, GPUS).severity in ("fail", "permission")}


def image_environment(variant: Variant) -> dict[str, str]:
    """The base's variables, and those that our Dockerfile replaces."""
    own = {"PYTORCH_ROCM_ARCH": ";".join(variant.targets)} if variant.platform == "rocm" else {}
    return {**BASES[variant.base].environment, **own}


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Healthy GPUs of each architecture, whatever this machine has."""

    def states(platform: str) -> list[GpuState]:
        names = ("gfx90a", "gfx942", "gfx950") if platform == "rocm" else ("8.0", "9.0", "10.0")
        return [GpuState(f"GPU-{name}", "a GPU", "999.0", name, 1 << 37, 0, 0, ()) for name in names]

    monkeypatch.setattr(gpus, "_query", states)


def test_every_base_of_others_is_described() -> None:
    assert [each.name for each in Catalog.read().variants.values() if not (each.base_made or each.base in BASES)] == []


@pytest.mark.parametrize("name", VARIANTS)
def test_no_check_fails_because_of_a_bases_own_variables(
    name: str, node: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = VARIANTS[name]
    versions = {"torch": variant.pins.get("torch", ""), "vllm": variant.pins.get("vllm", "")}
    monkeypatch.setattr(vllm, "installed", lambda package: versions.get(package, ""))
    # The architectures of this variant alone.
    wanted = {gpu if gpu.startswith("gfx") else f"{gpu[2:-1]}.{gpu[-1]}" for gpu in variant.gpus}
    all_states = gpus._query(variant.platform)
    monkeypatch.setattr(gpus, "_query", lambda _: [state for state in all_states if state.architecture in wanted])

    assert failing(variant, image_environment(variant)) - failing(variant, {}) == set()


def test_a_base_that_breaks_vllm_would_be_found(node: None, monkeypatch: pytest.MonkeyPatch) -> None:
    variant = VARIANTS["cu12-vllm0.17"]
    monkeypatch.setattr(vllm, "installed", lambda _: "0.17.0")

    found = failing(variant, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}) - failing(variant, {})

    assert found == {"vllm.allocator_settings_fit"}
