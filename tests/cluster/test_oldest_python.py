"""Python 3.9 with Ray 2.44, the oldest pair of an image: the unit tests, and a cluster of two real supervisors."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.shell.supervised import FAKES, Job

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".build" / "python3.9-ray2.44"
PACKAGES = [
    "ray[default]==2.44.1",
    "hydra-core==1.3.2",
    "docker",
    "invoke",
    "jinja2",
    "pytest",
    "pytest-docker",
    "tomli",
]
CLUSTER_S = 300


def interpreter() -> str | None:
    """A Python 3.9 that runs: on PATH, or one of pyenv's versions."""
    candidates = [found] if (found := shutil.which("python3.9")) else []
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=True).stdout.strip()
        candidates += map(str, Path(root, "versions").glob("3.9.*/bin/python"))
    for candidate in candidates:  # a shim is on PATH also where its version is not chosen
        tried = subprocess.run([candidate, "-c", "import venv, ensurepip"], capture_output=True, check=False)
        if tried.returncode == 0:
            return candidate
    return None


@pytest.fixture(scope="module")
def python39() -> Path:
    """Its interpreter, in an environment that is made once (Ray is a download of 65 MB)."""
    python = ENVIRONMENT / "bin" / "python"
    whole = ENVIRONMENT / "whole"
    if whole.exists() and whole.read_text() == "\n".join(PACKAGES):
        return python
    found = interpreter()
    if found is None:
        pytest.skip("there is no Python 3.9 on this machine")
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    subprocess.run([found, "-m", "venv", ENVIRONMENT], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    whole.write_text("\n".join(PACKAGES))
    return python


def test_the_unit_tests_hold(python39: Path) -> None:
    cache = f"cache_dir={ROOT / '.pytest_cache'}"  # verl's own files are downloaded once
    done = subprocess.run(
        [python39, "-m", "pytest", "--quiet", "-o", cache, "tests/unit"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout


def test_two_supervisors_form_a_cluster_and_end_with_the_trainings_code(python39: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(
        FAKES / "python3"
    )  # preparation and training; REAL_DRIVER: not the driver
    job = Job(tmp_path, 2, python=python39, ray="2.44.1")
    try:
        job.start(
            FAKE_TRAINING="echo trained; exit 7",
            REAL_DRIVER="1",
            PATH=f"{tmp_path}/bin:{python39.parent}:{os.environ['PATH']}",
            VERLJOB_JOIN_TIMEOUT_S=str(CLUSTER_S),
        )

        assert job.end(0, CLUSTER_S) == 7, job.output(0)
        assert job.end(1, 20) == 0
        assert "Ray 2.44.1, Python 3.9" in job.output(0)
        for address in ("127.0.0.2", "127.0.0.3"):
            assert f"a task ran at {address} (Python 3.9" in job.output(0)
        assert job.left() == []
    finally:
        job.close()
