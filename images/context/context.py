"""Stages the build context of a variant: one folder with exactly the files that its Dockerfile reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from images.catalog.variant import Variant
from images.context import render, verl_source
from images.context.staging import Staging
from images.errors import ImageError
from images.host.digests import DigestCache, open_cache
from images.host.paths import ENTRYPOINTS, STAGED, STEPS, TEMPLATES
from images.pins import apt, locks

PYCACHE = "__pycache__"
PACKAGES = {"cpu": ("verl_node", "verl_cpu")}  # of entrypoints/; only verl_node on a platform not named here


@dataclass(frozen=True)
class BuildContext:
    """A staged build context: its folder, the Dockerfile's text, and the content of /opt/verljob/image.json.

    ``entries`` has every path in the folder, as images/context/inputs.py describes it; None for a hard link, which is
    not read while it is staged.
    """

    folder: Path
    dockerfile: str
    manifest: Mapping[str, Any]
    entries: Mapping[str, str | None]


def stage(
    variant: Variant,
    base: str,
    links: Mapping[str, Path],
    lock: Path | None = None,
    verl: verl_source.Source | None = None,
) -> BuildContext:
    """Update ``.build/images/<variant>``; ``lock`` and ``verl`` replace the variant's own lock and release of verl.

    ``links`` are downloaded files by their path in the context.
    """
    folder, dockerfile = STAGED / variant.name, render.dockerfile(variant)
    rest, of_verl = locks.split((lock or locks.path(variant.released)).read_text(encoding="utf-8"), "verl")
    texts = {"Dockerfile": dockerfile, "apt.txt": apt.text(variant), "lock.txt": rest, "verl.txt": of_verl}
    if variant.from_wheels:  # the layers below the one of lock.txt
        texts["torch.txt"] = locks.select(rest, locks.is_of_torch)
        texts["engine.txt"] = locks.select(rest, lambda name: name in variant.guarded and not locks.is_of_torch(name))
    with Staging(folder, open_cache(STAGED / "digests.json"), staged_digests(folder)) as staging:
        for name in ("wheelhouse", "debs", "git"):
            staging.folder(name)
        for name, text in texts.items():
            staging.text(name, text)
        for step in STEPS:
            staging.file(f"steps/{step}", str(TEMPLATES / step))
        for name, source in links.items():
            staging.link(name, source)
        if verl:
            verl_source.stage(verl, staging, "verl")
        manifest = _image_manifest(variant, base, _stage_toolkit(variant, staging, "toolkit"))
        staging.text("toolkit/image.json", json.dumps(manifest, indent=1) + "\n")
    return BuildContext(folder, dockerfile, manifest, staging.entries)


def staged_digests(folder: Path) -> DigestCache:
    """Return the cached digests of a staged folder, which are stored beside it."""
    return open_cache(folder.with_name(f"{folder.name}.digests.json"))


def _image_manifest(variant: Variant, base: str, toolkit: str) -> dict[str, Any]:
    """The content of /opt/verljob/image.json (docs/flow.md, "In the image")."""
    return {
        "name": variant.repository,
        "variant": variant.name,
        "platform": variant.platform,
        "base": base,
        "toolkit": toolkit,
        "template": render.revision(variant),
        "pins": variant.pins,
        "state": {"kind": variant.state.kind, "what": variant.state.what},
    }


def _stage_toolkit(variant: Variant, staging: Staging, name: str) -> str:
    """Stage the toolkit; return its revision, 12 hex digits that depend on the bytes of its files only."""
    if not (ENTRYPOINTS / "entrypoint.sh").is_file():
        raise ImageError(f"{ENTRYPOINTS / 'entrypoint.sh'} is missing: build from a complete checkout")
    for path in ENTRYPOINTS.iterdir():
        if path.is_file():
            staging.file(f"{name}/{path.name}", str(path), _mode(path.name))
    for package in PACKAGES.get(variant.platform, ("verl_node",)):
        staging.tree(
            f"{name}/python/{package}", str(ENTRYPOINTS / package), PYCACHE.__eq__, lambda each, _: _mode(each)
        )
    return staging.digest(name)[:12]


def _mode(name: str) -> int:
    """Modes in the image do not depend on the checkout's: every checkout gives one image, readable by every uid."""
    return 0o755 if name.endswith(".sh") else 0o644
