"""The build context of a variant: exactly what its Dockerfile may see, staged in one folder."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from images import apt, source
from images import lock as locks
from images.errors import ImageError
from images.render import TEMPLATES, dockerfile, revision
from images.spec import ImageSpec

ROOT = Path(__file__).resolve().parent.parent
STAGED = ROOT / ".build" / "images"
STEPS = ("guard.py", "apt.sh")  # what the Dockerfiles run, of dockerfiles/
PACKAGES = {"cpu": ("verl_node", "verl_cpu")}  # of entrypoints/; on a platform not named here verl_node alone


@contextmanager
def alone(spec: ImageSpec) -> Iterator[None]:
    """Wait until no other build of this variant in this checkout is under way, and be the one that is."""
    STAGED.mkdir(parents=True, exist_ok=True)
    with (STAGED / f"{spec.variant}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def stage(
    spec: ImageSpec, base: str, wheels: Sequence[Path], lock: Path | None = None, verl: source.Source | None = None
) -> Path:
    """Fill ``.build/images/<variant>`` anew and return it; ``lock`` takes the place of the variant's own.

    ``verl`` is the source that takes the place of the release's.
    """
    folder = STAGED / spec.variant
    shutil.rmtree(folder, ignore_errors=True)
    for each in ("steps", "wheelhouse", "debs", "git", "toolkit/python"):
        (folder / each).mkdir(parents=True)
    (folder / "Dockerfile").write_text(dockerfile(spec), encoding="utf-8")
    for step in STEPS:
        shutil.copy2(TEMPLATES / step, folder / "steps")
    (folder / "apt.txt").write_text(apt.text(spec), encoding="utf-8")
    rest, of_verl = locks.without((lock or locks.path(spec.released)).read_text(encoding="utf-8"), "verl")
    (folder / "lock.txt").write_text(rest, encoding="utf-8")
    (folder / "verl.txt").write_text(of_verl, encoding="utf-8")
    for wheel in wheels:
        link(wheel, folder / "wheelhouse" / wheel.name)
    if verl:
        source.stage(verl, folder / "verl")
    _stage_toolkit(spec, folder / "toolkit")
    manifest = image_manifest(spec, base, toolkit_revision(folder / "toolkit"))
    told = folder / "toolkit/image.json"
    told.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    told.chmod(0o644)
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
    return tree_digest(folder)[:12]


def tree_digest(folder: Path) -> str:
    """The sha256 over the paths and contents of a folder's files."""
    digest, top = hashlib.sha256(), f"{folder}/"
    # Strings, since this is done for every image that may be unchanged, and Path takes three times as long.
    for path in sorted(os.path.join(place, name) for place, _, names in os.walk(folder) for name in names):
        with open(path, "rb") as file:
            content = file.read()
        digest.update(f"{path.removeprefix(top)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _stage_toolkit(spec: ImageSpec, folder: Path) -> None:
    source = ROOT / "entrypoints"
    if not (source / "entrypoint.sh").is_file():
        raise ImageError(f"{source / 'entrypoint.sh'} is missing: build from a complete checkout")
    for path in sorted(path for path in source.iterdir() if path.is_file()):
        shutil.copyfile(path, folder / path.name)
    for package in PACKAGES.get(spec.platform, ("verl_node",)):
        shutil.copytree(source / package, folder / "python" / package, ignore=shutil.ignore_patterns("__pycache__"))
    # A checkout's own modes and umask do not count: an image is the same from every checkout, readable by every uid.
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.suffix == ".sh" else 0o644)


def link(source: Path | str, target: Path | str) -> None:
    """A hard link where one is possible, so that an unchanged wheel is unchanged for the engine, too."""
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
