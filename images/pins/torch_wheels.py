"""Finds and downloads torch's CPU wheels.

PyPI's torch for Linux is the CUDA build, with several GB of nvidia-* distributions. So the metadata of pip's choice is
read first, and only a build without CUDA requirements is downloaded.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from email.parser import HeaderParser
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from images.errors import CommandFailed, TorchUnavailable
from images.host import digests
from images.host.paths import TORCH_PINS
from images.host.process import run

PYTORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CUDA_REQUIREMENTS = ("nvidia-", "cuda-", "triton")
# Platforms that glibc 2.36 of bookworm can load; PyTorch's wheels have used each of them.
PLATFORMS = ("manylinux_2_28", "manylinux2014", "linux")


def torch_cpu(
    version: str,
    python: str,
    cache: Path,
    wheelhouse: Path | None = None,
    environment: Mapping[str, str] | None = None,
    *,
    machine: str = "x86_64",
) -> Path:
    """Return the torch wheel: from ``wheelhouse``, else pip's choice if that is a CPU build, else PyTorch's CPU index.

    ``environment`` has a site's index and CA bundle for pip; the index may contain a password, so it is not in argv.
    """
    if wheelhouse:
        return _verified(from_wheelhouse(version, python, wheelhouse, machine), cache)
    if cached := sorted(cache.glob(_pattern(version, python, machine))):
        return cached[0]  # verified before it was moved into the cache
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="new-") as new:
        try:
            choice = _pip_choice(version, python, machine, environment)
            source = [] if _is_cpu(choice) else ["--index-url", PYTORCH_CPU_INDEX]
            run([*_pip("download", python, machine), *source, "--dest", new, f"torch=={version}"], environment)
        except CommandFailed as failure:
            raise TorchUnavailable(
                f"no CPU build of torch {version} for Python {python}: pip found the CUDA build or none, and nothing "
                "in PyTorch's CPU index. Put the wheel into a folder and name it with --wheelhouse DIR.\n"
                f"{failure.output[-600:]}"
            ) from failure
        wheel = from_wheelhouse(version, python, Path(new), machine)
        _check_digest(wheel, digests.sha256_file(wheel))
        return wheel.replace(cache / wheel.name)


def pinned(version: str, python: str, machine: str, pins: Path = TORCH_PINS) -> list[str]:
    """Return the `<sha256>  <file>` lines of a torch, as sha256sum writes them; none if no index was queried."""
    lines = pins.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if Path(line.split()[1]).match(_pattern(version, python, machine))]


def update(version: str, python: str, machine: str, pins: Path = TORCH_PINS) -> Path:
    """Pin the sha256 of a torch's wheel, which is not downloaded; raise TorchUnavailable if the index has none."""
    try:
        choice = _pip_choice(version, python, machine)
        if not _is_cpu(choice):
            choice = _pip_choice(version, python, machine, source=["--index-url", PYTORCH_CPU_INDEX])
    except CommandFailed as failure:
        raise TorchUnavailable(f"no CPU build of torch {version} for Python {python} on {machine}") from failure
    old = pinned(version, python, machine, pins)
    others = [line for line in pins.read_text(encoding="utf-8").splitlines() if line not in old]
    download = choice["download_info"]  # PEP 610's direct_url.json
    file, sha256 = unquote(download["url"].rpartition("/")[2]), download["archive_info"]["hashes"]["sha256"]
    pins.write_text("".join(f"{line}\n" for line in sorted({*others, f"{sha256}  {file}"})), encoding="utf-8")
    return pins


def from_wheelhouse(version: str, python: str, wheelhouse: Path, machine: str = "x86_64") -> Path:
    """Return the CPU wheel of a folder; raise TorchUnavailable with the wheels that the folder has instead."""
    fits = sorted(wheelhouse.glob(_pattern(version, python, machine)))
    for wheel in fits:
        if is_cpu(wheel_requirements(wheel)):
            return wheel
    present = ", ".join(sorted(wheel.name for wheel in wheelhouse.glob("torch-*.whl"))) or "no torch at all"
    required = f"torch {version} for Python {python}" + (", but without CUDA requirements" if fits else "")
    raise TorchUnavailable(f"{wheelhouse} needs {required}; it has {present}. Fetch it from {PYTORCH_CPU_INDEX}.")


def is_cpu(requirements: Iterable[str]) -> bool:
    """Whether a wheel with these requirements is built without CUDA."""
    return not any(requirement.lower().startswith(CUDA_REQUIREMENTS) for requirement in requirements)


@lru_cache
def wheel_requirements(wheel: Path) -> list[str]:
    """Requires-Dist of a wheel file."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode("utf-8")).get_all("Requires-Dist", [])


def _verified(wheel: Path, cache: Path) -> Path:
    """Return a site's own wheel if its digest is the pinned one; the digest is cached in ``cache``."""
    cached = digests.open_cache(cache / "digests.json")
    _check_digest(wheel, cached.sha256(str(wheel)))
    cached.save()
    return wheel


def _check_digest(wheel: Path, sha256: str) -> None:
    """Raise TorchUnavailable if a file of this name is pinned with another digest."""
    lines = [line.split() for line in TORCH_PINS.read_text(encoding="utf-8").splitlines()]
    pins = [pin for pin, name in lines if name == wheel.name]
    if pins and sha256 not in pins:
        raise TorchUnavailable(
            f"{wheel} has the sha256 {sha256}, but images/pins/wheels.txt has {pins[0]} for a file of this name. "
            "Remove it, or update the pin with `invoke image.pins --update` and review the difference."
        )


def _pip_choice(
    version: str, python: str, machine: str, environment: Mapping[str, str] | None = None, source: Sequence[str] = ()
) -> dict[str, Any]:
    """Return pip's report on the wheel that it would install."""
    # A dry run reads metadata; `pip download` would first fetch the wheel of 900 MB.
    dry_run = ["--dry-run", "--quiet", "--ignore-installed", "--target", "unused", "--report", "-"]
    argv = [*_pip("install", python, machine), *source, *dry_run, f"torch=={version}"]
    return dict(json.loads(run(argv, environment))["install"][0])


def _is_cpu(choice: Mapping[str, Any]) -> bool:
    return is_cpu(choice["metadata"].get("requires_dist", []))


def _pattern(version: str, python: str, machine: str) -> str:
    return f"torch-{version}*-cp{python.replace('.', '')}-*_{machine}.whl"


def _pip(verb: str, python: str, machine: str) -> list[str]:
    platforms = [flag for platform in PLATFORMS for flag in ("--platform", f"{platform}_{machine}")]
    target = ["--only-binary", ":all:", "--python-version", python, *platforms]
    return [sys.executable, "-m", "pip", verb, "--no-deps", *target]
