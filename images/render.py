"""A Dockerfile's text from a spec: pure, and the same on every machine."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from images.spec import ImageSpec

TEMPLATES = Path(__file__).resolve().parent.parent / "dockerfiles"
RENDERED = TEMPLATES / "rendered"
SHARED = ("macros.j2", "guard.py")  # what every platform's template brings into its build


def dockerfile(spec: ImageSpec, templates: Path = TEMPLATES) -> str:
    """The Dockerfile of a variant; a name that the template misspells stops it (jinja2.UndefinedError)."""
    return _rendered(f"{spec.platform}.j2", templates, spec=spec, template_revision=revision(spec, templates))


def bundle(spec: ImageSpec, packages: str, templates: Path = TEMPLATES) -> str:
    """The Dockerfile that collects what a build of the variant downloads, the distribution's ``packages`` first."""
    return _rendered("bundle.j2", templates, spec=spec, packages=packages)


def _rendered(name: str, templates: Path, **words: object) -> str:
    environment = Environment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  a Dockerfile is not HTML
    )
    return environment.get_template(name).render(**words)


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
