"""The build context of a variant: exactly what its Dockerfile may see, staged in one folder."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

from images.errors import ImageError
from images.render import TEMPLATES, dockerfile, revision
from images.spec import ImageSpec

ROOT = Path(__file__).resolve().parent.parent
STAGED = ROOT / ".build"
LOCKS = Path(__file__).with_name("locks")
PACKAGES = {"cpu": ("verl_node", "verl_cpu")}  # of entrypoints/; everywhere else verl_node alone


def stage(spec: ImageSpec, base: str, wheels: list[Path], folder: Path | None = None) -> Path:
    """Fill ``.build/<variant>`` anew and return it.

    Files are hard links where they can be, so that the engine sees an unchanged wheel as unchanged.
    """
    folder = folder or STAGED / spec.variant
    shutil.rmtree(folder, ignore_errors=True)
    for each in ("steps", "wheelhouse", "toolkit/python"):
        (folder / each).mkdir(parents=True)
    (folder / "Dockerfile").write_text(dockerfile(spec), encoding="utf-8")
    shutil.copy2(TEMPLATES / "guard.py", folder / "steps/guard.py")
    shutil.copy2(LOCKS / f"{spec.variant}.txt", folder / "lock.txt")
    for wheel in wheels:
        _link(wheel, folder / "wheelhouse" / wheel.name)
    _stage_toolkit(spec, folder / "toolkit")
    manifest = image_manifest(spec, base, toolkit_revision(folder / "toolkit"))
    (folder / "toolkit/image.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return folder


def image_manifest(spec: ImageSpec, base: str, toolkit: str) -> dict[str, object]:
    """The content of /opt/verljob/image.json (docs/flow.md, "In the image")."""
    return {
        "name": spec.name,
        "variant": spec.variant,
        "platform": spec.platform,
        "base": base,
        "toolkit": toolkit,
        "template": revision(spec),
        "pins": spec.pins,
    }


def toolkit_revision(folder: Path) -> str:
    """12 hex digits that change with every byte of the toolkit's files, and with nothing else."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _stage_toolkit(spec: ImageSpec, folder: Path) -> None:
    source = ROOT / "entrypoints"
    script = source / "entrypoint.sh"
    if not script.is_file():
        raise ImageError(f"{script} is missing: build from a complete checkout")
    shutil.copy2(script, folder / "entrypoint.sh")
    (folder / "entrypoint.sh").chmod(0o755)
    for package in PACKAGES.get(spec.platform, ("verl_node",)):
        shutil.copytree(source / package, folder / "python" / package, ignore=shutil.ignore_patterns("__pycache__"))


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
