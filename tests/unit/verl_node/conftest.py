"""verl's configuration files from its wheels on PyPI: this repository has none of verl's code."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

RELEASES = ("0.2", "0.3.0.post1", "0.4.0", "0.4.1", "0.5.0", "0.6.1", "0.7.1", "0.8.0", "0.9.1")


@pytest.fixture(scope="session")
def verl_config(request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """The folder of a release's Hydra configuration, downloaded once into pytest's cache (0.5 to 2 MB a release)."""
    wheels = request.config.cache.mkdir("verl")

    def folder(release: str) -> Path:
        unpacked = wheels / release
        config = unpacked / "verl" / "trainer" / "config"
        if not config.is_dir():
            # The wheel is only read, so the Python that it asks for does not matter.
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--ignore-requires-python"]
            subprocess.run([*command, "--only-binary", ":all:", "--dest", wheels, f"verl=={release}"], check=True)
            with zipfile.ZipFile(next(wheels.glob(f"verl-{release}-*.whl"))) as wheel:
                wheel.extractall(
                    unpacked, [name for name in wheel.namelist() if name.startswith("verl/trainer/config/")]
                )
        return config

    return folder


@pytest.fixture(scope="session")
def known(verl_config: Callable[[str], Path]) -> dict[str, set[str]]:
    """Release → every key of it, mappings and leaves, the oldest release first."""
    found = {}
    for release in RELEASES:
        with initialize_config_dir(str(verl_config(release)), version_base=None):
            found[release] = {*_keys(compose("ppo_trainer"))}
    return found


def _keys(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """Every key, mappings and leaves, without Hydra's `_target_`."""
    for name in map(str, config):
        if name == "_target_":
            continue
        yield f"{prefix}{name}"
        value = config._get_node(name)
        if isinstance(value, DictConfig) and not value._is_none() and not value._is_interpolation():
            yield from _keys(value, f"{prefix}{name}.")
