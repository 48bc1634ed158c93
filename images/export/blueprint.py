"""What builds an image elsewhere: an Apptainer definition or docker-bake.json, with the context that they take."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from images.builds.build import torch_of
from images.builds.site import Site
from images.catalog.spec import ImageSpec
from images.context import context
from images.context.labels import portable
from images.context.render import dockerfile
from images.export.bake import bake
from images.export.definition import definition
from images.host.locking import alone

FORMATS = ("apptainer", "bake")


def write(spec: ImageSpec, site: Site, asked: Sequence[str], folder: Path, base: str = "") -> list[Path]:
    """Write what builds the image elsewhere, and beside it the build's context, without anything of this site."""
    reference, text = base or spec.base, dockerfile(spec)
    folder.mkdir(parents=True, exist_ok=True)
    with alone(spec.variant):
        staged = context.stage(spec, reference, torch_of(spec, site))
        shutil.rmtree(folder / "context", ignore_errors=True)
        shutil.copytree(staged, folder / "context", copy_function=context.link)
    (folder / "secrets").mkdir(exist_ok=True)
    Site().secrets(spec, folder / "secrets")
    secrets = sorted(path.name for path in (folder / "secrets").iterdir())
    labels = portable(reference, folder / "context")
    texts = {
        "apptainer": (f"{spec.name}-{spec.tag}.def", definition(text, {"BASE": reference})),
        "bake": ("docker-bake.json", bake(spec, text, reference, labels=labels, secrets=secrets)),
    }
    for name, content in (texts[each] for each in asked):
        (folder / name).write_text(content, encoding="utf-8")
    return [folder / texts[each][0] for each in asked]
