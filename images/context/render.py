"""A Dockerfile's text from a spec: pure, and the same on every machine."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from images.catalog.catalog import Catalog
from images.catalog.spec import ImageSpec
from images.host.paths import RENDERED, STEPS, TEMPLATES

SUFFIX = ".Dockerfile"
SHARED = ("macros.j2", *STEPS)  # what every platform's template brings into its build


def dockerfile(spec: ImageSpec, templates: Path = TEMPLATES) -> str:
    """The Dockerfile of a variant; a name that the template misspells stops it (jinja2.UndefinedError)."""
    template = _environment(templates).get_template(f"{spec.platform}.j2")
    return template.render(spec=spec, template_revision=revision(spec, templates))


def bundle(spec: ImageSpec, templates: Path = TEMPLATES) -> str:
    """The Dockerfile that collects what a build of the variant downloads."""
    return _environment(templates).get_template("bundle.j2").render(spec=spec)


def revision(spec: ImageSpec, templates: Path = TEMPLATES) -> str:
    """What a variant is rendered from, as 12 hex digits: the templates' text and the variant's table."""
    digest = hashlib.sha256(json.dumps(vars(spec), sort_keys=True, default=vars).encode())
    digest.update(_text(templates, spec.platform))
    return digest.hexdigest()[:12]


def write(spec: ImageSpec, folder: Path = RENDERED) -> Path:
    """Render into ``<folder>/<variant>.Dockerfile``."""
    path = folder / f"{spec.variant}{SUFFIX}"
    path.write_text(dockerfile(spec), encoding="utf-8")
    return path


def write_all(catalog: Catalog, folder: Path = RENDERED) -> list[Path]:
    """Render every variant, and remove what is left of variants that are gone."""
    written = [write(spec, folder) for spec in catalog.variants.values()]
    for left in set(folder.glob(f"*{SUFFIX}")) - set(written):
        left.unlink()
    return written


@cache
def _text(templates: Path, platform: str) -> bytes:
    return b"".join((templates / name).read_bytes() for name in (f"{platform}.j2", *SHARED))


@cache
def _environment(templates: Path) -> Environment:
    # Made once: to compile the templates takes longer than to render all variants.
    return Environment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        auto_reload=False,
        autoescape=False,  # noqa: S701  a Dockerfile is not HTML
    )
