"""Resolution of requirements for another Python and platform, by uv and the package index."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from images.errors import ImageError
from images.host.process import run

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def packages(
    target: tuple[str, str],
    requirements: Sequence[str],
    *,
    constraints: Sequence[str] = (),
    overrides: Sequence[str] = (),
    flags: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return the packages as in PEP 751, each with the files that fit ``target``, a Python and a platform."""
    form = ["--format", "pylock.toml", *flags]
    with tempfile.TemporaryDirectory(prefix="verljob-resolver-") as folder:
        files = {"in": requirements, "constraints": constraints, "overrides": overrides}
        text = _compile(Path(folder), target, files, form)
    return list(tomllib.loads(text).get("packages", []))


def versions(
    target: tuple[str, str],
    requirements: Sequence[str],
    preferred: Mapping[str, str],
    *,
    overrides: Sequence[str] = (),
    flags: Sequence[str] = (),
) -> dict[str, str]:
    """Return the version of each package; one that is ``preferred`` is kept wherever it fits."""
    with tempfile.TemporaryDirectory(prefix="verljob-resolver-") as folder:
        # uv prefers the versions in the file that it will write.
        output = Path(folder) / "output.txt"
        output.write_text("".join(f"{name}=={version}\n" for name, version in preferred.items()), encoding="utf-8")
        files = {"in": requirements, "constraints": [], "overrides": overrides}
        _compile(Path(folder), target, files, ["--output-file", str(output), *flags])
        pins = (line.split("==") for line in output.read_text(encoding="utf-8").split())
        return {canonicalize_name(name): version for name, version in pins}


def _compile(folder: Path, target: tuple[str, str], files: Mapping[str, Sequence[str]], flags: Sequence[str]) -> str:
    # `./run` installs uv beside its Python, which is not on PATH.
    if not (uv := shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))):
        raise ImageError("uv is needed to resolve a lock: pip install uv")
    paths = {name: folder / f"{name}.txt" for name in files}
    for name, lines in files.items():
        paths[name].write_text("\n".join(lines) + "\n", encoding="utf-8")
    limits = ["--constraint", str(paths["constraints"]), "--override", str(paths["overrides"])]
    # Without --python uv queries every Python of this machine for one of that version, which it does not need.
    python = ["--python", sys.executable, "--python-version", target[0], "--python-platform", target[1]]
    form = ["--no-annotate", "--no-header", "--quiet"]
    return run([uv, "pip", "compile", str(paths["in"]), *limits, *python, *form, *flags])
