"""verl's own configuration files, taken from the wheels on PyPI: none of verl's code is in this repository."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

RECORDED = Path(__file__).parent / "recorded"


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
