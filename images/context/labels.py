"""Labels of an image that are only known at build time.

An ARG in their place would bust the layers below it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from images.engine.buildah import given_time_s
from images.engine.daemon import Inspected

OCI = "org.opencontainers.image"


def build_labels(reference: str, base: Inspected, folder: Path) -> dict[str, str]:
    """Labels of the base as this machine has it, and of the toolkit in the build context ``folder``."""
    manifest = json.loads((folder / "toolkit/image.json").read_text(encoding="utf-8"))
    found = {
        "verljob.base": reference,
        f"{OCI}.base.name": reference,
        "verljob.toolkit": manifest["toolkit"],
        "verljob.base.id": str(base.id),
    }
    for pulled in (base.attrs.get("RepoDigests") or [])[:1]:
        found[f"{OCI}.base.digest"] = pulled.partition("@")[2]
    if (time_s := given_time_s()) is not None:  # any other time would make each build another image
        found[f"{OCI}.created"] = datetime.fromtimestamp(time_s, timezone.utc).isoformat()
    return found


def flags(labels: Mapping[str, str]) -> list[str]:
    """As words of a build command."""
    return [word for name, value in labels.items() for word in ("--label", f"{name}={value}")]
