"""Locks: what the installed packages pull in turn, resolved for the image's Python on whatever machine this is.

A lock holds no protected package and nothing that only those need (nvidia-*): both come with the base, or with torch's
CPU wheel. What the base has besides stays at the base's version (dockerfiles/guard.py), so on a GPU base most lines
have no effect; on a bare base they are the whole environment.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from packaging.utils import canonicalize_name

from images.errors import ImageError
from images.process import run
from images.spec import ImageSpec

LOCKS = Path(__file__).with_name("locks")
PLATFORM = "x86_64-unknown-linux-gnu"
OF_CUDA = ("nvidia-", "cuda-", "triton")


def write(spec: ImageSpec, folder: Path = LOCKS) -> Path:
    """Resolve again and write ``<folder>/<variant>.txt``; needs uv and a package index."""
    asked = [spec.requirement(name) for name in spec.installs if name != "torch"]
    torch = f"torch=={spec.pins['torch']}"
    # First with all that the base has, so that the versions fit it; then without, so that only ours are listed.
    together = resolve(spec, [*asked, torch, *spec.lock.with_], [])
    ours = resolve(spec, [*asked, torch], together)
    path = folder / f"{spec.variant}.txt"
    path.write_text("\n".join(without_base(spec, ours)) + "\n", encoding="utf-8")
    return path


def resolve(spec: ImageSpec, requirements: list[str], constraints: list[str]) -> list[str]:
    """``name==version`` lines for the variant's Python."""
    if not shutil.which("uv"):
        raise ImageError("uv is needed to resolve a lock: pip install uv")
    with tempfile.TemporaryDirectory(prefix="verljob-lock-") as folder:
        files = {"in": requirements, "constraints": constraints, "overrides": list(spec.lock.override)}
        paths = {name: Path(folder) / f"{name}.txt" for name in files}
        for name, lines in files.items():
            paths[name].write_text("\n".join(lines) + "\n", encoding="utf-8")
        limits = ["--constraint", str(paths["constraints"]), "--override", str(paths["overrides"])]
        target = ["--python-version", spec.python, "--python-platform", PLATFORM]
        bare = ["--no-annotate", "--no-header", "--quiet"]
        text = run(["uv", "pip", "compile", str(paths["in"]), *limits, *target, *bare])
    return [line for line in text.splitlines() if re.match(r"[A-Za-z0-9]", line)]


def without_base(spec: ImageSpec, lines: list[str]) -> list[str]:
    """The lines that an image may install."""
    absent = {"torch", *spec.guarded, *map(canonicalize_name, spec.lock.omit), *spec.replaces}
    return [line for line in lines if (name := line.split("==")[0]) not in absent and not name.startswith(OF_CUDA)]


def without(text: str, name: str) -> tuple[str, str]:
    """A lock's lines without those of one package, and that package's, hashes on lines of their own included."""
    entries = re.findall(r"(?:[^\n]*\\\n)*[^\n]*\n", text if text.endswith("\n") else text + "\n")
    of_it = [entry for entry in entries if re.match(rf"{re.escape(name)}\s*(\[[^]]*\])?\s*==", entry)]
    return "".join(entry for entry in entries if entry not in of_it), "".join(of_it)
