"""Making the stand-ins for the GPU bases; standins/README.md says what they prove and what not."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import stub_wheel
from packaging.utils import canonicalize_name

from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.engine import base_image
from images.engine.client import choose
from images.host.process import run
from images.pins import base_packages
from images.pins.requirements import Distribution
from tests.support.images import described_base

FILES = Path(__file__).parent
VARIANTS = ("rocm6.2", "cu130")
# Real packages, from the lock or the stand-in's Dockerfile: `ray --version`, pip and the builds import them.
REAL = {
    "ray", "click", "filelock", "jsonschema", "jsonschema-specifications", "msgpack", "packaging", "protobuf", "pyyaml",
    "requests", "attrs", "referencing", "rpds-py", "typing-extensions", "charset-normalizer", "idna", "urllib3",
    "certifi", "aiosignal", "frozenlist", "numpy", "pip", "setuptools", "wheel",
}  # fmt: skip
# The stubs of torch carry no verl, whose tensordict is linked with torch.
CANNOT_IMPORT = ["verl", "transfer_queue"]


@cache
def ensure(variant: str) -> str:
    """Build the stand-in of a variant's base, or find it built; its reference."""
    chosen = Catalog.read().variants[variant]
    reference = f"verljob-standin:{variant}"
    engine = choose()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as private:
        stage(variant, chosen.python, Path(folder))
        secrets = Site.read().secrets(chosen, Path(private))
        arguments = ["--tag", reference, "--build-arg", f"BASE={base_image.ensure()}", *secrets, folder]
        run(engine.build_argv(arguments), engine.environment)
    return reference


def stage(variant: str, python: str, folder: Path) -> None:
    """Lay out the build context."""
    for each in ("wheels/base", "wheels/offered", "python"):
        (folder / each).mkdir(parents=True)
    shutil.copy(FILES / f"Dockerfile.{variant}", folder / "Dockerfile")
    shutil.copy(FILES / "git", folder)
    shutil.copytree(FILES / "vllm", folder / "vllm")
    (folder / "cannot-import").write_text("\n".join(CANNOT_IMPORT) + "\n", encoding="utf-8")
    for name, package in described(variant).items():
        files: dict[str, str] | None = None if name in stubs(variant) else {}
        stub_wheel.write(folder / "wheels/base", name, package.version, files, package.requires or ())
    for name, new in Catalog.read().variants[variant].replaces.items():
        lines = described_base.replacement(name, new.version).requires or ()
        (folder / name / "requires.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    offered(folder / "wheels/offered")
    if found := interpreter(python):
        unwanted = shutil.ignore_patterns("__pycache__", "test", "tests", "*.a", "idlelib", "site-packages", "share")
        shutil.copytree(found, folder / "python", symlinks=True, dirs_exist_ok=True, ignore=unwanted)
        pip = next((found / "lib").glob("python3*/site-packages/pip"))
        for part in pip.parent.glob("pip*"):
            shutil.copytree(part, folder / "python" / part.relative_to(found))


def described(variant: str) -> dict[str, Distribution]:
    """Packages of the base by images/pins/bases/, without those that are real in a stand-in."""
    base = base_packages.read()[Catalog.read().variants[variant].base]
    return {name: each for name, each in base_packages.packages(base).items() if name not in REAL}


def stubs(variant: str) -> dict[str, str]:
    """Name and version of the packages that have a module: those that the guard protects or the build replaces."""
    chosen = Catalog.read().variants[variant]
    names = {*map(canonicalize_name, chosen.protected)}
    return {name: each.version for name, each in described(variant).items() if name in names}


def offered(folder: Path) -> None:
    """What the stand-in's pip may find besides its index: a newer torch, and packages that would bring it."""
    stub_wheel.write(folder, "torch", "99.0")
    stub_wheel.write(folder, "wants-newer-torch", "1.0", requires=["torch>=99"])
    stub_wheel.write(folder, "overwrites-torch", "1.0", {"torch/__init__.py": '__version__ = "99.0"\n'})


def interpreter(version: str) -> Path | None:
    """The prefix of a Python of this version on this machine: from PATH, else from pyenv's."""
    candidates = [shutil.which(f"python{version}")]
    if root := os.environ.get("PYENV_ROOT"):
        candidates += [str(path) for path in Path(root).glob(f"versions/{version}.*/bin/python{version}")]
    for candidate in filter(None, candidates):
        argv = [candidate, "-c", "import sys; print(sys.base_prefix)"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode == 0 and (prefix := Path(done.stdout.strip())) != Path("/usr"):
            return prefix
    return None
