"""What a cell comes to before anything is built: whether it can work, and the texts of its build context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from images.catalog.spec import ImageSpec
from images.engine.daemon import daemon_version
from images.host.cache import recalled


@dataclass(frozen=True)
class Draft:
    """The files that are written for a cell, by name, and the revision of the templates that they were made of."""

    texts: Mapping[str, str]
    revision: str


def of(spec: ImageSpec, lock: Path | None = None) -> Draft:
    """The texts of a cell; ``lock`` takes the place of its own."""
    if lock:
        return Draft(**_made(spec, lock))
    return Draft(**recalled(f"draft-{spec.variant}", spec, lambda: _made(spec, None)))


def refuse_impossible(spec: ImageSpec) -> None:
    """Incompatible where a cell cannot work, whatever the engine."""
    recalled(f"possible-{spec.variant}", spec, lambda: _possible(spec))


def refuse_engine(spec: ImageSpec) -> None:
    """Incompatible where the engine can neither pull the base nor run it; the rule is asked where one may say so."""
    version = daemon_version()
    if spec.base_layers not in ("", "gzip") or version["Arch"] != spec.architecture:
        from images.catalog import compatibility

        compatibility.refuse_engine(spec, version)


def _possible(spec: ImageSpec) -> bool:
    from images.catalog import compatibility  # which loads packaging and what verl's releases ask for

    compatibility.refuse_impossible(spec)
    return True


def _made(spec: ImageSpec, lock: Path | None) -> dict[str, Any]:
    from images.context import render  # which loads Jinja
    from images.pins import apt, locks

    text = (lock or locks.path(spec.released)).read_text(encoding="utf-8")
    rest, of_verl = locks.without(text, "verl")
    texts = {"Dockerfile": render.dockerfile(spec), "apt.txt": apt.text(spec), "lock.txt": rest, "verl.txt": of_verl}
    return {"texts": texts, "revision": render.revision(spec)}
