"""A small image with verl.cpu's toolkit on the Debian base, and the provenance record of its build."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from docker.models.images import Image

from images.catalog.catalog import Catalog
from images.context import context, inputs
from images.context.plan import BuildPlan
from images.engine import base_image
from images.engine.client import choose
from images.engine.daemon import daemon, get
from images.host.process import run
from images.report import record

DOCKERFILE = """
ARG BASE
FROM ${BASE}
COPY site/ /opt/
RUN rm -r /opt/a/gone-1.dist-info /opt/anew && mkdir -p /opt/anew/new-1.dist-info \\
 && printf 'Name: new\\nVersion: 1\\n' > /opt/anew/new-1.dist-info/METADATA
COPY toolkit/ /opt/verljob/
"""


@contextmanager
def built(name: str, folder: Path) -> Iterator[Image]:
    """Build the image from a context below ``folder``, and remove it and its record at the end."""
    variant, engine, reference, started = Catalog.read().find("cpu"), choose(), base_image.ensure(), record.now()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "STAGED", folder)
        staged = context.stage(variant, reference, {})
    dockerfile = folder / "small.Dockerfile"  # beside the context, whose files the record has
    dockerfile.write_text(DOCKERFILE)
    for path in ("a/stays-1", "a/gone-1", "anew/old-1"):
        metadata = staged.folder / f"site/{path}.dist-info/METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text(f"Name: {path[path.index('/') + 1 : -2]}\nVersion: 1\n")
    argv = engine.build_argv(
        ["--tag", name, "--file", str(dockerfile), "--build-arg", f"BASE={reference}", str(staged.folder)]
    )
    run(argv, engine.environment)
    image, below = daemon().images.get(name), get(reference)
    versions, entries = inputs.docker_versions(engine), dict.fromkeys(staged.entries)
    found = inputs.collect(staged.folder, below.id, versions, {}, entries)
    plan = BuildPlan(variant, [name], engine, reference, below, staged, {}, found)
    recorded = record.write(str(image.id), record.predicate(plan, record.dependencies(plan), started))
    try:
        yield image
    finally:
        recorded.unlink()
        daemon().images.remove(str(image.id), force=True)
