"""Renders the Dockerfile of a variant: a pure function of catalog and templates."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.host.paths import RENDERED, STEPS, TEMPLATES

SUFFIX = ".Dockerfile"
SHARED = ("macros.j2", *STEPS)  # used by every template


def dockerfile(variant: Variant, templates: Path = TEMPLATES) -> str:
    """Render the Dockerfile of a variant; a misspelt name in the template raises jinja2.UndefinedError."""
    template = _environment(templates).get_template(f"{variant.template}.j2")
    return template.render(variant=variant, template_revision=revision(variant, templates))


def bundle(variant: Variant, templates: Path = TEMPLATES) -> str:
    """Render the Dockerfile that collects the downloads of a variant's build."""
    return _environment(templates).get_template("bundle.j2").render(variant=variant)


def revision(variant: Variant, templates: Path = TEMPLATES) -> str:
    """Return 12 hex digits that depend on the templates' text and the variant's table."""
    digest = hashlib.sha256(json.dumps(vars(variant), sort_keys=True, default=vars).encode())
    digest.update(_text(templates, variant.template))
    return digest.hexdigest()[:12]


def write(variant: Variant, folder: Path = RENDERED) -> Path:
    """Render into ``<folder>/<variant>.Dockerfile``."""
    path = folder / f"{variant.name}{SUFFIX}"
    path.write_text(dockerfile(variant), encoding="utf-8")
    return path


def write_all(catalog: Catalog, folder: Path = RENDERED) -> list[Path]:
    """Render every variant, and remove the files of variants that no longer exist."""
    written = [write(variant, folder) for variant in catalog.variants.values()]
    for stale in set(folder.glob(f"*{SUFFIX}")) - set(written):
        stale.unlink()
    return written


@cache
def _text(templates: Path, template: str) -> bytes:
    return b"".join((templates / name).read_bytes() for name in (f"{template}.j2", *SHARED))


@cache
def _environment(templates: Path) -> Environment:
    # Cached: compiling the templates takes longer than rendering all variants.
    return Environment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        auto_reload=False,
        autoescape=False,  # noqa: S701  a Dockerfile is not HTML
    )
