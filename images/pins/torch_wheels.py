"""Finds and downloads torch's CPU wheels.

PyPI's torch for Linux is the CUDA build, with several GB of nvidia-* distributions. So nothing is taken unseen: what
pip would choose is read first, and only a build without CUDA requirements is downloaded.
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
# What glibc 2.36 of bookworm can load; PyTorch's wheels have used each of them.
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
    """The torch wheel: from ``wheelhouse``, else what pip finds if that is a CPU build, else PyTorch's CPU index.

    ``environment`` tells pip of a site's index and CA bundle; an index may hold a password, which has no place in argv.
    """
    if wheelhouse:
        return _verified(from_wheelhouse(version, python, wheelhouse, machine), cache)
    if there := sorted(cache.glob(_pattern(version, python, machine))):
        return there[0]  # what lies in the cache was verified before it came there
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="new-") as new:
        try:
            taken = _what_pip_would_take(version, python, machine, environment)
            source = [] if _is_cpu(taken) else ["--index-url", PYTORCH_CPU_INDEX]
            run([*_pip("download", python, machine), *source, "--dest", new, f"torch=={version}"], environment)
        except CommandFailed as failure:
            raise TorchUnavailable(
                f"no CPU build of torch {version} for Python {python}: pip finds the CUDA build or none, and PyTorch's "
                "CPU index did not help. Put the wheel into a folder and name it with --wheelhouse DIR.\n"
                f"{failure.said[-600:]}"
            ) from failure
        wheel = from_wheelhouse(version, python, Path(new), machine)
        _refuse_another(wheel, digests.sha256_file(wheel))
        return wheel.replace(cache / wheel.name)


def pinned(version: str, python: str, machine: str, pins: Path = TORCH_PINS) -> list[str]:
    """The `<sha256>  <file>` lines of a torch, as sha256sum writes them; none where no index was asked."""
    lines = pins.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if Path(line.split()[1]).match(_pattern(version, python, machine))]


def update(
    version: str, python: str, machine: str, environment: Mapping[str, str] | None = None, pins: Path = TORCH_PINS
) -> Path:
    """Ask the index for the sha256 of a torch's wheel; it is not downloaded. TorchUnavailable where there is none."""
    try:
        taken = _what_pip_would_take(version, python, machine, environment)
        if not _is_cpu(taken):
            taken = _what_pip_would_take(version, python, machine, environment, ["--index-url", PYTORCH_CPU_INDEX])
    except CommandFailed as failure:
        raise TorchUnavailable(f"no CPU build of torch {version} for Python {python} on {machine}") from failure
    old = pinned(version, python, machine, pins)
    others = [line for line in pins.read_text(encoding="utf-8").splitlines() if line not in old]
    found = taken["download_info"]  # PEP 610's direct_url.json
    file, sha256 = unquote(found["url"].rpartition("/")[2]), found["archive_info"]["hashes"]["sha256"]
    pins.write_text("".join(f"{line}\n" for line in sorted({*others, f"{sha256}  {file}"})), encoding="utf-8")
    return pins


def from_wheelhouse(version: str, python: str, wheelhouse: Path, machine: str = "x86_64") -> Path:
    """The CPU wheel of a folder; TorchUnavailable says what the folder has instead."""
    fits = sorted(wheelhouse.glob(_pattern(version, python, machine)))
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
    state = wheel.stat()
    return _requirements(wheel, state.st_ino, state.st_size, state.st_ctime_ns)


@lru_cache(maxsize=32)
def _requirements(wheel: Path, *_identity: int) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode("utf-8")).get_all("Requires-Dist", [])


def _verified(wheel: Path, cache: Path) -> Path:
    """A site's own wheel, if it is the file that is known by its name; ``cache`` remembers its digest."""
    seen = digests.open_cache(cache / "digests.json")
    _refuse_another(wheel, seen.sha256(str(wheel)))
    seen.save()
    return wheel


def _refuse_another(wheel: Path, sha256: str) -> None:
    """TorchUnavailable where the file of this name is known with other bytes."""
    known = [
        line.split()[0] for line in TORCH_PINS.read_text(encoding="utf-8").splitlines() if line.split()[1] == wheel.name
    ]
    if known and sha256 not in known:
        raise TorchUnavailable(
            f"{wheel} has the sha256 {sha256}, images/pins/wheels.txt says {known[0]}: it is another file of this "
            "name. Remove it, or have `invoke image.pins --update` ask the index again and review the difference."
        )


def _what_pip_would_take(
    version: str, python: str, machine: str, environment: Mapping[str, str] | None, source: Sequence[str] = ()
) -> dict[str, Any]:
    # A dry run reads metadata; `pip download` would fetch the wheel of 900 MB to find out.
    dry_run = ["--dry-run", "--quiet", "--ignore-installed", "--target", "unused", "--report", "-"]
    argv = [*_pip("install", python, machine), *source, *dry_run, f"torch=={version}"]
    return dict(json.loads(run(argv, environment))["install"][0])


def _is_cpu(taken: Mapping[str, Any]) -> bool:
    return is_cpu(taken["metadata"].get("requires_dist", []))


def _pattern(version: str, python: str, machine: str) -> str:
    return f"torch-{version}*-cp{python.replace('.', '')}-*_{machine}.whl"


def _pip(verb: str, python: str, machine: str) -> list[str]:
    platforms = [word for platform in PLATFORMS for word in ("--platform", f"{platform}_{machine}")]
    target = ["--only-binary", ":all:", "--python-version", python, *platforms]
    return [sys.executable, "-m", "pip", verb, "--no-deps", *target]
