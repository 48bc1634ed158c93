"""Stages the build context of a variant: one folder with exactly the files that its Dockerfile reads."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from images.catalog.variant import Variant
from images.context import render, verl_source
from images.context.staging import Staging
from images.errors import ImageError
from images.host import digests
from images.host.paths import ENTRYPOINTS, STAGED, STEPS, TEMPLATES
from images.pins import apt, locks

PYCACHE = "__pycache__"
PACKAGES = {"cpu": ("verl_node", "verl_cpu")}  # of entrypoints/; on a platform not named here verl_node alone


def stage(
    variant: Variant,
    base: str,
    wheels: Sequence[Path],
    lock: Path | None = None,
    verl: verl_source.Source | None = None,
    *,
    told: dict[str, str | None] | None = None,
) -> Path:
    """Make ``.build/images/<variant>`` what it should be, and return it; ``lock`` takes the place of the variant's own.

    ``verl`` is the source that takes the place of the release's; ``told`` gets what inputs.py wants of it.
    """
    folder = STAGED / variant.name
    with Staging(folder, digests.at(STAGED / "digests.json"), staged_digests(folder)) as staging:
        for each in ("wheelhouse", "debs", "git"):
            staging.folder(each)
        for name, text in generated(variant, lock).items():
            staging.text(name, text)
        for step in STEPS:
            staging.file(f"steps/{step}", str(TEMPLATES / step))
        for wheel in wheels:
            staging.link(f"wheelhouse/{wheel.name}", wheel)
        if verl:
            verl_source.stage(verl, staging, "verl")
        manifest = image_manifest(variant, base, _stage_toolkit(variant, staging, "toolkit"), render.revision(variant))
        staging.text("toolkit/image.json", json.dumps(manifest, indent=1) + "\n")
        if told is not None:
            told.update(staging.inputs)
    return folder


def generated(variant: Variant, lock: Path | None = None) -> dict[str, str]:
    """The generated files of the build context by name; ``lock`` takes the place of the variant's own."""
    text = (lock or locks.path(variant.released)).read_text(encoding="utf-8")
    rest, of_verl = locks.split(text, "verl")
    return {
        "Dockerfile": render.dockerfile(variant),
        "apt.txt": apt.text(variant),
        "lock.txt": rest,
        "verl.txt": of_verl,
    }


def staged_digests(folder: Path) -> digests.Digests:
    """The digests of what is staged in a folder, as they are remembered beside it."""
    return digests.at(folder.with_name(f"{folder.name}.digests.json"))


def image_manifest(variant: Variant, base: str, toolkit: str, template: str) -> dict[str, object]:
    """The content of /opt/verljob/image.json (docs/flow.md, "In the image")."""
    return {
        "name": variant.repository,
        "variant": variant.name,
        "platform": variant.platform,
        "base": base,
        "toolkit": toolkit,
        "template": template,
        "pins": variant.pins,
    }


def _stage_toolkit(variant: Variant, staging: Staging, name: str) -> str:
    """Stage the toolkit; 12 hex digits that change with every byte of its files, and with nothing else."""
    toolkit = ENTRYPOINTS
    if not (toolkit / "entrypoint.sh").is_file():
        raise ImageError(f"{toolkit / 'entrypoint.sh'} is missing: build from a complete checkout")
    for path in toolkit.iterdir():
        if path.is_file():
            staging.file(f"{name}/{path.name}", str(path), _mode(path.name))
    for package in PACKAGES.get(variant.platform, ("verl_node",)):
        mode = lambda each, _: _mode(each)  # noqa: E731
        staging.tree(f"{name}/python/{package}", str(toolkit / package), PYCACHE.__eq__, mode)
    return staging.digest(name)[:12]


def _mode(name: str) -> int:
    """A checkout's own modes do not count: an image is the same from every checkout, readable by every uid."""
    return 0o755 if name.endswith(".sh") else 0o644


def link(source: Path | str, target: Path | str) -> None:
    """A hard link where one is possible, so that an unchanged wheel is unchanged for the engine, too."""
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
