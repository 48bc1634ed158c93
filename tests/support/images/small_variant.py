"""A small verl.cpu: its template on the real Debian base, with packages of a few bytes that pip accepts."""

from __future__ import annotations

import hashlib
import io
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import stub_wheel

from images.builds.build import BuildRequest, build
from images.builds.bundle import Bundle
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.context import context
from images.host.process import run

VERSIONS = {"torch": "2.13.0", "verl": "0.9.1", "ray": "2.60.0"}
# The template removes files of these packages, so they must exist. `source-only` has no wheel: its build accepts any
# setuptools, and the index has a newer one than build-tools.txt names. The build records the network interfaces.
STUBS = {"verl": "0.9.1", "ray": "2.60.0", "sympy": "1.0", "networkx": "1.0"}
BACKEND = """
import setuptools, socket, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(f"{folder}/source_only-1.0-py3-none-any.whl", "w") as wheel:
        info = "source_only-1.0.dist-info"
        wheel.writestr("source_only.py", f"INTERFACES = {[name for _, name in socket.if_nameindex()]}\\n"
            f"BUILT_WITH = {setuptools.__version__!r}\\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: source-only\\nVersion: 1.0\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "source_only.py,,\\n")
    return "source_only-1.0-py3-none-any.whl"
"""
PYPROJECT = '[build-system]\nrequires = ["setuptools>=40.8.0"]\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def small() -> Variant:
    cpu = Catalog.read().variants["cpu"]
    imports = ["torch", "ray", "verl", "source_only"]
    return replace(cpu, installs=VERSIONS, extras={}, imports=imports, training={})


def lay_out(folder: Path) -> tuple[Path, Path]:
    """Write the index's files, the lock and a wheelhouse below ``folder``; return files and lock."""
    files, wheelhouse, lock = folder / "files", folder / "wheelhouse", folder / "lock.txt"
    for each in (files, wheelhouse):
        each.mkdir()
    locked = {f"{name}=={version}": stub_wheel.write(files, name, version) for name, version in STUBS.items()}
    hashed = ["--no-deps", "--require-hashes", "-r", str(context.TEMPLATES / "build-tools.txt")]
    run([sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(files), *hashed])
    stub_wheel.write(files, "setuptools", "999.0")
    module = {"torch/__init__.py": "", "torch/bin/torch_shm_manager": ""}
    torch = stub_wheel.write(wheelhouse, "torch", f"{VERSIONS['torch']}+cpu", module)
    torch.rename(wheelhouse / torch.name.replace("py3-none-any", "cp311-cp311-linux_x86_64"))
    with tarfile.open(files / "source_only-1.0.tar.gz", "w:gz") as archive:
        sources = {"PKG-INFO": "Metadata-Version: 2.1\nName: source-only\nVersion: 1.0\n", "backend.py": BACKEND}
        for name, text in {**sources, "pyproject.toml": PYPROJECT}.items():
            member = tarfile.TarInfo(f"source_only-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    locked["source-only==1.0"] = files / "source_only-1.0.tar.gz"
    hashes = {each: hashlib.sha256(path.read_bytes()).hexdigest() for each, path in locked.items()}
    marks = {each: "" if path.suffix == ".whl" else "  # sdist" for each, path in locked.items()}
    lock.write_text("".join(f"{each} --hash=sha256:{hashes[each]}{marks[each]}\n" for each in locked))
    return files, lock


if __name__ == "__main__":  # BUNDLE LOCK TAG: run as a script, in a network namespace without network
    bundle, lock, tag = sys.argv[1:]
    request = BuildRequest(small(), [tag], lock=Path(lock), bundle=Bundle.read(Path(bundle)))
    sys.stdout.write(build(request, Site()))
