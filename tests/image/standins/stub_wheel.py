"""Writing a small wheel by hand: a stand-in needs packages that pip takes for real."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def write(
    folder: Path, name: str, version: str, files: Mapping[str, str] | None = None, requires: Sequence[str] = ()
) -> Path:
    """``<folder>/<name>-<version>-py3-none-any.whl`` with ``files`` (may be none; default: a module of its name)."""
    module = name.replace("-", "_")
    files = {f"{module}/__init__.py": f'__version__ = "{version}"\n'} if files is None else files
    info = f"{module}-{version}.dist-info"
    metadata = [
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}",
        *(f"Requires-Dist: {each}" for each in requires),
    ]
    described = {
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: stand-in\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    members = {**files, **described}
    path = folder / f"{module}-{version}-py3-none-any.whl"
    record = [f"{member},," for member in (*members, f"{info}/RECORD")]
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in {**members, f"{info}/RECORD": "\n".join(record) + "\n"}.items():
            archive.writestr(zipfile.ZipInfo(member), text)  # at no time: the same stub is the same file
    return path
