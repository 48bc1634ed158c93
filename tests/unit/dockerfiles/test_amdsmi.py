"""Repair of a TheRock base: amdsmi from the SDK's sources, and rocm_sdk without RTLD_GLOBAL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import CHECKOUT

SCRIPT = CHECKOUT / "dockerfiles" / "amdsmi.py"
SETUP = """[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "amdsmi"
version = "26.0"
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A virtual environment with the SDK's two packages, as TheRock's wheels install them."""
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", tmp_path / "venv"], check=True)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    source = packages / "_rocm_sdk_core" / "share" / "amd_smi"
    (source / "amdsmi").mkdir(parents=True)
    (packages / "_rocm_sdk_core" / "__init__.py").touch()
    (source / "amdsmi" / "__init__.py").touch()
    (source / "pyproject.toml").write_text(SETUP)
    (packages / "rocm_sdk").mkdir()
    (packages / "rocm_sdk" / "__init__.py").write_text("def preload(rtld_global: bool = True): ...\n")
    return tmp_path / "venv"


def repair(base: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([base / "bin/python3", SCRIPT], capture_output=True, text=True, check=False)


def test_amdsmi_is_installed_and_the_sdk_loads_its_libraries_locally(base: Path) -> None:
    done = repair(base)

    assert done.returncode == 0, done.stderr
    (packages,) = base.glob("lib/python*/site-packages")
    assert (packages / "amdsmi" / "__init__.py").exists()
    assert (packages / "rocm_sdk" / "__init__.py").read_text() == "def preload(rtld_global: bool = False): ...\n"
    assert "the base has it" in repair(base).stdout


def test_another_base_or_an_unknown_sdk_fails_with_the_place(base: Path) -> None:
    (packages,) = base.glob("lib/python*/site-packages")
    (packages / "rocm_sdk" / "__init__.py").write_text("def preload(mode: int): ...\n")
    assert "rocm_sdk/__init__.py has no `rtld_global: bool = True`" in repair(base).stderr

    (packages / "_rocm_sdk_core" / "__init__.py").unlink()
    (packages / "amdsmi" / "__init__.py").unlink()
    (packages / "amdsmi").rename(packages / "gone")
    assert "it is not TheRock's ROCm" in repair(base).stderr
