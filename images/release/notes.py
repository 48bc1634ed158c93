"""Text of a release: its section of CHANGELOG.md, and the table of published images."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from images.contents.layer_sizes import mb
from images.errors import ReleaseFailed

HEADING = re.compile(r"## +\[?([^\]\s]+)\]?.*")
VERIFY = """\
Run an image by its digest, which no later push can change, and check who made it with the key in `release.pub`:

```sh
export VERLJOB_IMAGE={name}@{digest}
invoke image.verify --image $VERLJOB_IMAGE --key release.pub
```"""


@dataclass(frozen=True)
class Published:
    """An image of a release, as its registry has it: ``name`` has no tag, ``size`` is compressed, in bytes."""

    variant: str
    name: str
    tag: str
    digest: str
    size: int
    base: str
    state: str


def section(version: str, changelog: Path) -> str:
    """Return the text below a version's heading; raise ReleaseFailed if there is none."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in changelog.read_text(encoding="utf-8").splitlines():
        if heading := HEADING.fullmatch(line):
            lines = sections.setdefault(heading[1], [])
        else:
            lines.append(line)
    if text := "\n".join(sections.get(version, [])).strip():
        return text
    found = f"the section of {version} is empty" if version in sections else f"it has {', '.join(sections) or 'none'}"
    raise ReleaseFailed(
        f"{changelog.name} has no text for {version} ({found}): rename [Unreleased] to [{version}] - <date of the "
        "release>, and commit it before the tag is set"
    )


def table(images: Sequence[Published], left_out: Mapping[str, str]) -> str:
    """Format the images as a table in Markdown, and a line for each variant that was left out, with its reason."""
    rows = [["variant", "image", "digest", "size", "base", "state"], ["---"] * 6]
    for each in images:
        names = [f"`{part}`" for part in (each.variant, f"{each.name}:{each.tag}", each.digest)]
        rows.append([*names, mb(each.size), f"`{each.base}`", each.state])
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    reasons = [f"- `{variant}` is not published: {reason}" for variant, reason in left_out.items()]
    return "\n".join([*lines, *([""] if reasons else []), *reasons])


def text(changes: str, images: Sequence[Published], left_out: Mapping[str, str]) -> str:
    """Return the text of a release: its changes, the table of its images, and how to use them."""
    usage = VERIFY.format(name=images[0].name, digest=images[0].digest)
    return "\n\n".join([changes, "## Images", table(images, left_out), usage]) + "\n"
