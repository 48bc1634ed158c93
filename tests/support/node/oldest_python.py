"""Environment with Python 3.9 and Ray 2.44, the oldest pair that verl_node supports."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import CHECKOUT

ENVIRONMENT = CHECKOUT / ".build" / "python3.9-ray2.44"
PROJECT = CHECKOUT / "pyproject.toml"  # for its dependencies
CONSTRAINTS = CHECKOUT / "bootstrap" / "constraints.txt"
PACKAGES = ["ray[default]==2.44.1", "hydra-core", "pip", "pytest", "pytest-docker", "pytest-xdist"]


def interpreter() -> str | None:
    """Return a working Python 3.9: on PATH, or of pyenv."""
    candidates = [found] if (found := shutil.which("python3.9")) else []
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=True).stdout.strip()
        candidates += map(str, Path(root, "versions").glob("3.9.*/bin/python"))
    for candidate in candidates:  # a pyenv shim is on PATH even if its version is not selected
        trial = subprocess.run([candidate, "-c", "import venv, ensurepip"], capture_output=True, check=False)
        if trial.returncode == 0:
            return candidate
    return None


def ensure() -> Path:
    """Return the interpreter of a cached environment with Python 3.9 and Ray, a download of 65 MB; skip without 3.9."""
    python = ENVIRONMENT / "bin" / "python"
    complete, inputs = ENVIRONMENT / "complete", "\n".join([*PACKAGES, PROJECT.read_text(), CONSTRAINTS.read_text()])
    if complete.exists() and complete.read_text() == inputs:
        return python
    base = interpreter()
    if base is None:
        pytest.skip("this machine has no Python 3.9")
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    subprocess.run([base, "-m", "venv", "--without-pip", ENVIRONMENT], check=True)
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--native-tls", "--python", str(python)]
    subprocess.run([*uv, *PACKAGES, "--requirement", str(PROJECT), "--constraint", str(CONSTRAINTS)], check=True)
    complete.write_text(inputs)
    return python
