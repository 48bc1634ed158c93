"""The commands that README.md, CONTRIBUTING.md and docs/ give a reader: in blocks of sh, and within a line of text."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import CHECKOUT

PAGES = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *sorted((CHECKOUT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANY_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
# Of a line of text what is ours alone: of sbatch or docker it may name a mere flag.
INLINE = re.compile(r"`((?:\w+=\S+ )*(?:\./run|invoke|\.venv/bin/\w+|python3?) [^`]+)`")
ASSIGNMENT = re.compile(r"([A-Z_]+)=(.*)")
LAUNCH = "slurm/launch.sh"
WORDS_OF_LAUNCH = ("doctor", "cluster", "legacy")
# How many words beside the flags say what is done.
NAMES = {"invoke": 1, "docker": 1, "uv": 1, "pip": 1, "python": 1, "pytest": 0, "sbatch": 0}


@dataclass(frozen=True)
class Command:
    """A command as a reader would type it: its page, the variables that it sets for itself, and its words."""

    page: str
    environment: dict[str, str]
    words: tuple[str, ...]
    whole: bool = True
    """Whether it stands in a block, and not as a mention that may leave things out."""

    @property
    def program(self) -> str:
        """The program, by one name for each: ./run is invoke."""
        name = Path(self.words[0]).name
        return {"run": "invoke", "python3": "python"}.get(name, name)

    @property
    def launch(self) -> tuple[str, ...] | None:
        """What launch.sh is given, None where it is not started."""
        at = self.words.index(LAUNCH) + 1 if LAUNCH in self.words and self.program in ("sbatch", "bash") else 0
        return self.words[at:] if at else None

    @property
    def kind(self) -> str:
        """What it does without the values: variables, program, task or script, names of flags."""
        if self.launch is not None:
            said = [_of_launch(word) for word in self.launch]
            requeued = ["--requeue"] if "--requeue" in self.words else []
            return " ".join([*self.environment, self.program, *requeued, LAUNCH, *said])
        own = self.words[1 : self.words.index("--") + 1] if "--" in self.words else self.words[1:]
        named = [word for word in own if not word.startswith("-")][: NAMES[self.program]]
        flags = [word.partition("=")[0] for word in own if word.startswith("-")]
        return " ".join([*self.environment, self.program, *named, *flags])


def _of_launch(word: str) -> str:
    if word.startswith("-") or word in WORDS_OF_LAUNCH:
        return word
    return "OVERRIDE" if "=" in word else "RECIPE"


def commands() -> list[Command]:
    """All of them, in the order of the pages; what only sets a variable is none."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = [line for block in BLOCK.findall(text) for line in block.replace("\\\n", " ").splitlines()]
        found += [_command(page.name, line, True) for line in blocks]
        found += [_command(page.name, line, False) for line in INLINE.findall(ANY_BLOCK.sub("", text))]
    return [each for each in found if each.words and each.words[-1] != "TASK"]


def _command(page: str, line: str, whole: bool) -> Command:
    words = [word.strip("[]") for word in shlex.split(line, comments=True)]
    words = [] if words[:1] == ["export"] else words
    own = {}
    while words and (told := ASSIGNMENT.fullmatch(words[0])):
        own[told[1]] = told[2]
        words = words[1:]
    return Command(page, own, tuple(words), whole)
