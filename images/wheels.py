"""torch without CUDA: which wheel, and where from.

PyPI's torch for Linux is the CUDA build, with several GB of nvidia-* distributions. So nothing is taken unseen: what
pip would choose is read first, and only a build without CUDA requirements is downloaded.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from email.parser import Parser
from pathlib import Path

from images import archive
from images.errors import CommandFailed, TorchUnavailable
from images.process import run

PYTORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CUDA_REQUIREMENTS = ("nvidia-", "cuda-", "triton")
# What glibc 2.36 of bookworm can load; PyTorch's wheels have used each of them.
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "linux_x86_64")


def torch_cpu(
    version: str, python: str, cache: Path, wheelhouse: Path | None = None, environment: Mapping[str, str] | None = None
) -> Path:
    """The torch wheel: from ``wheelhouse``, else what pip finds if that is a CPU build, else PyTorch's CPU index.

    ``environment`` tells pip of a site's index and CA bundle; an index may hold a password, which has no place in argv.
    """
    if wheelhouse:
        return from_wheelhouse(version, python, wheelhouse)
    for wheel in sorted(cache.glob(_pattern(version, python))):
        if is_cpu(wheel_requirements(wheel)):
            return wheel
    cache.mkdir(parents=True, exist_ok=True)
    try:
        found = is_cpu(_what_pip_would_take(version, python, environment))
        source = [] if found else ["--index-url", PYTORCH_CPU_INDEX]
        run([*_pip("download", python), *source, "--dest", str(cache), f"torch=={version}"], environment)
    except CommandFailed as failure:
        raise TorchUnavailable(
            f"no CPU build of torch {version} for Python {python}: pip finds the CUDA build or none, and PyTorch's CPU "
            f"index did not help. Put the wheel into a folder and name it with --wheelhouse DIR.\n{failure.said[-600:]}"
        ) from failure
    return from_wheelhouse(version, python, cache)


def from_wheelhouse(version: str, python: str, wheelhouse: Path) -> Path:
    """The CPU wheel of a folder; TorchUnavailable says what the folder has instead."""
    fits = sorted(wheelhouse.glob(_pattern(version, python)))
    for wheel in fits:
        if is_cpu(wheel_requirements(wheel)):
            return wheel
    have = ", ".join(sorted(wheel.name for wheel in wheelhouse.glob("torch-*.whl"))) or "no torch at all"
    asked = f"torch {version} for Python {python}" + (", but without CUDA requirements" if fits else "")
    raise TorchUnavailable(f"{wheelhouse} should have {asked}; it has {have}. Fetch it from {PYTORCH_CPU_INDEX}.")


def is_cpu(requirements: Iterable[str]) -> bool:
    """Whether these are the requirements of a build without CUDA."""
    return not any(each.lower().startswith(CUDA_REQUIREMENTS) for each in requirements)


def wheel_requirements(wheel: Path) -> list[str]:
    """Requires-Dist of a wheel file."""
    return Parser().parsestr(archive.metadata(wheel).decode("utf-8")).get_all("Requires-Dist", [])


def _what_pip_would_take(version: str, python: str, environment: Mapping[str, str] | None) -> list[str]:
    # A dry run reads metadata; `pip download` would fetch the wheel of 900 MB to find out.
    dry_run = ["--dry-run", "--quiet", "--ignore-installed", "--target", "unused", "--report", "-"]
    report = json.loads(run([*_pip("install", python), *dry_run, f"torch=={version}"], environment))
    return [each for item in report["install"] for each in item["metadata"].get("requires_dist", [])]


def _pattern(version: str, python: str) -> str:
    return f"torch-{version}*-cp{python.replace('.', '')}-*.whl"


def _pip(verb: str, python: str) -> list[str]:
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    target = ["--only-binary", ":all:", "--python-version", python, *platforms]
    return [sys.executable, "-m", "pip", verb, "--no-deps", *target]
