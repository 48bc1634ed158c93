"""A Dockerfile as the list of its steps, of as much of the language as our templates use (level 1.2)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from string import Template

from images.errors import ImageError

CONTINUED = re.compile(r"\\[ \t]*\n")


@dataclass(frozen=True)
class Step:
    """One instruction: its name in capitals, its --flags, and its words with continued lines made one."""

    name: str
    flags: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return " ".join((self.name, *self.flags, *self.text.split()))

    @property
    def alias(self) -> str:
        """Of FROM: the name of the stage that it begins, if it has one."""
        _, *named = self.words
        return named[1] if len(named) == 2 and named[0].upper() == "AS" else ""

    @property
    def mounts(self) -> list[dict[str, str]]:
        """The options of each --mount."""
        options = [flag.partition("=")[2].split(",") for flag in self.flags if flag.startswith("--mount=")]
        return [dict(each.partition("=")[::2] for each in mount) for mount in options]

    @property
    def words(self) -> list[str]:
        """A list in JSON, or what stands between blanks."""
        return [str(word) for word in json.loads(self.text)] if self.text.startswith("[") else self.text.split()

    @property
    def pairs(self) -> dict[str, str]:
        """Of ENV, LABEL and ARG: name to value, without quotes."""
        found = re.findall(r'([\w.-]+)=(?:"((?:\\.|[^"\\])*)"|(\S*))', self.text)
        return {name: re.sub(r"\\(.)", r"\1", quoted) if quoted else plain for name, quoted, plain in found}


@dataclass(frozen=True)
class Stage:
    """What is built on one base: the base's name, the stage's own, if any, and its steps."""

    base: str
    name: str
    steps: tuple[Step, ...]


def parse(text: str) -> list[Step]:
    """Every step, in order; comments and empty lines are none, also between continued lines."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = CONTINUED.sub("", "\n".join(lines) + "\n")
    return [_step(line) for line in joined.splitlines()]


def _step(line: str) -> Step:
    name, _, rest = line.strip().partition(" ")
    flags = []
    while found := re.match(r"\s*(--\S+)\s+", rest):
        flags.append(found[1])
        rest = rest[found.end() :]
    if not rest.strip():
        raise ImageError(f"a Dockerfile's step says nothing: {line[:80]!r}")
    return Step(name.upper(), tuple(flags), rest.strip())


def stages(text: str, arguments: Mapping[str, str] | None = None) -> list[Stage]:
    """The stages, with ``arguments`` (and the defaults of what is not among them) in the names of their bases."""
    return list(_stages(parse(text), dict(arguments or {})))


def _stages(steps: list[Step], values: dict[str, str]) -> Iterator[Stage]:
    begins = [index for index, step in enumerate(steps) if step.name == "FROM"]
    for step in steps[: begins[0] if begins else 0]:
        values = {**step.pairs, **values}
    for begin, end in zip(begins, [*begins[1:], len(steps)]):
        base = Template(steps[begin].words[0]).substitute(values)
        yield Stage(base, steps[begin].alias, tuple(steps[begin + 1 : end]))
