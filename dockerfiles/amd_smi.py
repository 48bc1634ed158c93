"""Installs amdsmi from the sources that TheRock's ROCm has on disk, and keeps torch's count of GPUs right.

ROCm as Python packages (rocm-sdk, as in docker.io/rocm/primus) has AMD SMI's library, but not its Python package,
without which Ray counts no GPU. With amdsmi a process has two copies of that library; they only stay apart if rocm_sdk
loads its own with RTLD_LOCAL, else torch.cuda.device_count() is 0 (AMD-Ecosystem/verl docker/rocm/Dockerfile.rocm at
release/0.9.0.amd0).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import guard

GLOBAL, LOCAL = "rtld_global: bool = True", "rtld_global: bool = False"


def folder(package: str) -> Path:
    """Return the folder of an installed package; exit with a message if it is missing."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        sys.exit(
            f"amd_smi: this base has no {package}: it is not TheRock's ROCm. Leave amd_smi.py out of its `repairs`."
        )
    return Path(spec.origin).parent


def install() -> None:
    """Build amdsmi with the guard's build tools, and install it, unless the base has it."""
    if find_spec("amdsmi") is not None:
        guard.say("the base has amdsmi")
        return
    source = folder("_rocm_sdk_core") / "share" / "amd_smi"
    if not (source / "amdsmi").is_dir():
        sys.exit(f"amd_smi: {source} has no Python package amdsmi; find where this ROCm has it")
    with tempfile.TemporaryDirectory() as copied, guard.build_tools() as tools:  # setuptools writes beside the sources
        shutil.copytree(source, f"{copied}/amd_smi")
        flags = ["--no-deps", "--no-build-isolation", "--use-pep517", "--no-compile", "--no-cache-dir"]
        guard.pip(["install", "--no-index", *flags, f"{copied}/amd_smi"], tools)


def load_locally() -> None:
    """Change rocm_sdk's default to RTLD_LOCAL."""
    module = folder("rocm_sdk") / "__init__.py"
    text = module.read_text(encoding="utf-8")
    if GLOBAL in text:
        module.write_text(text.replace(GLOBAL, LOCAL), encoding="utf-8")
    elif LOCAL not in text:
        sys.exit(f"amd_smi: {module} has no `{GLOBAL}`: check how this rocm_sdk loads its libraries")


if __name__ == "__main__":
    install()
    load_locally()
