"""docker-bake.json: what `docker buildx bake` builds from an exported context, as this toolkit would build it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from images.catalog.spec import ImageSpec


def bake(spec: ImageSpec, dockerfile: str, base: str, *, labels: Mapping[str, str], secrets: Sequence[str]) -> str:
    """The file's text; ``secrets`` are files of the folder ``secrets`` beside the context."""
    target = re.sub(r"[^\w-]", "-", spec.variant)  # what bake takes for a target's name
    described = {
        "context": "context",
        "dockerfile-inline": dockerfile,
        "args": {"BASE": base},
        "tags": [f"{spec.name}:{spec.tag}"],
        "labels": dict(labels),
        "secret": [f"id={name},src=secrets/{name}" for name in secrets],
    }
    text = json.dumps({"group": {"default": {"targets": [target]}}, "target": {target: described}}, indent=2)
    # Strings are HCL's templates (https://docs.docker.com/build/bake/reference/): `${BASE}` would be bake's variable.
    return text.replace("${", "$${").replace("%{", "%%{") + "\n"
