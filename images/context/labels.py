"""What a template cannot know of its image: the labels that a build gives it with its command.

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


def told(reference: str, base: Inspected, folder: Path) -> dict[str, str]:
    """The base that the image of this context stands on, as this machine has it, and the toolkit in it."""
    found = {**portable(reference, folder), "verljob.base.id": str(base.id)}
    for pulled in (base.attrs.get("RepoDigests") or [])[:1]:
        found[f"{OCI}.base.digest"] = pulled.partition("@")[2]
    if (time_s := given_time_s()) is not None:  # any other time would make each build another image
        found[f"{OCI}.created"] = datetime.fromtimestamp(time_s, timezone.utc).isoformat()
    return found


def portable(reference: str, folder: Path) -> dict[str, str]:
    """What is known where the base is not on this machine, too."""
    manifest = json.loads((folder / "toolkit/image.json").read_text(encoding="utf-8"))
    return {"verljob.base": reference, f"{OCI}.base.name": reference, "verljob.toolkit": manifest["toolkit"]}


def flags(labels: Mapping[str, str]) -> list[str]:
    """As words of a build command."""
    return [word for name, value in labels.items() for word in ("--label", f"{name}={value}")]
