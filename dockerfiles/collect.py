"""Runs inside a build, with the image's own Python: ``collect.py FOLDER REQUIREMENT…`` downloads what pip installs.

Nothing that a requirement asks for in turn, since a lock names all of it; but for a package that has no wheel also what
its own build asks for, since an offline build makes the wheel. Needs Python 3.8 and pip, nothing else.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

SOURCES = (".tar.gz", ".zip", ".tar.bz2", ".tgz")
WITHOUT_PYPROJECT = ["setuptools>=40.8.0", "wheel"]  # what pip installs for such a build


def download(folder: Path, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder), *words], check=True)


def asked_by_build(source: Path) -> list[str]:
    """The build requirements of a source archive."""
    for name, content in members(source):
        if name.count("/") == 1 and name.endswith("/pyproject.toml"):
            system = tomllib.load(io.BytesIO(content)).get("build-system", {})
            return [*system.get("requires", WITHOUT_PYPROJECT)]
    return WITHOUT_PYPROJECT


def members(source: Path) -> list[tuple[str, bytes]]:
    """Path and content of the archive's project files."""
    if source.suffix == ".zip":
        with zipfile.ZipFile(source) as archive:
            return [(name, archive.read(name)) for name in archive.namelist() if name.endswith("pyproject.toml")]
    with tarfile.open(source) as archive:
        files = [each for each in archive if each.isfile() and each.name.endswith("pyproject.toml")]
        return [(each.name, archive.extractfile(each).read()) for each in files]  # type: ignore[union-attr]


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    download(folder, "--no-deps", *sys.argv[2:])
    builds = [each for path in sorted(folder.iterdir()) if path.name.endswith(SOURCES) for each in asked_by_build(path)]
    if builds:
        download(folder, "--prefer-binary", *sorted(set(builds)))


if __name__ == "__main__":
    main()
