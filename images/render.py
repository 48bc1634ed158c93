"""A Dockerfile's text from a spec: pure, and the same on every machine."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from images.spec import ImageSpec

TEMPLATES = Path(__file__).resolve().parent.parent / "dockerfiles"
RENDERED = TEMPLATES / "rendered"
SHARED = ("macros.j2", "guard.py")  # what every platform's template brings into its build


def dockerfile(spec: ImageSpec, templates: Path = TEMPLATES) -> str:
    """The Dockerfile of a variant; a name that the template misspells stops it (jinja2.UndefinedError)."""
    template = _environment(templates).get_template(f"{spec.platform}.j2")
    return template.render(spec=spec, template_revision=revision(spec, templates))


def revision(spec: ImageSpec, templates: Path = TEMPLATES) -> str:
    """What a variant is rendered from, as 12 hex digits: the templates' text and the catalog's table."""
    digest = hashlib.sha256(json.dumps(asdict(spec), sort_keys=True).encode())
    for name in (f"{spec.platform}.j2", *SHARED):
        digest.update((templates / name).read_bytes())
    return digest.hexdigest()[:12]


def write(spec: ImageSpec, folder: Path = RENDERED) -> Path:
    """Render into ``<folder>/<variant>.Dockerfile``."""
    path = folder / f"{spec.variant}.Dockerfile"
    path.write_text(dockerfile(spec), encoding="utf-8")
    return path


@lru_cache
def _environment(templates: Path) -> Environment:
    """One for each folder: to compile a template takes a hundred times as long as to render it."""
    return Environment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  a Dockerfile is not HTML
    )
