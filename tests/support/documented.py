"""Parses the commands in README.md, CONTRIBUTING.md and docs/: in blocks of sh, and within a line of text."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import CHECKOUT

PAGES = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *sorted((CHECKOUT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANY_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
# Only our own programs within a line of text: of sbatch or docker it may quote a flag only.
INLINE = re.compile(r"`((?:\w+=\S+ )*(?:\./run|invoke|\.venv/bin/\w+|python3?) [^`]+)`")
ASSIGNMENT = re.compile(r"([A-Z_]+)=(.*)")
LAUNCH = "slurm/launch.sh"
LAUNCH_KEYWORDS = ("doctor", "cluster", "legacy")
# Number of arguments besides the flags that select the action.
NAMES = {"invoke": 1, "docker": 1, "uv": 1, "pip": 1, "python": 1, "pytest": 0, "sbatch": 0}


@dataclass(frozen=True)
class Command:
    """A command of a page: its environment variables and arguments."""

    page: str
    environment: dict[str, str]
    argv: tuple[str, ...]
    in_block: bool = True
    """Whether it is in a block, thus complete, and not a mention within a line of text."""

    @property
    def program(self) -> str:
        """The name of the program; ./run is invoke, python3 is python."""
        name = Path(self.argv[0]).name
        return {"run": "invoke", "python3": "python"}.get(name, name)

    @property
    def launch(self) -> tuple[str, ...] | None:
        """The arguments of launch.sh, None if the command does not start it."""
        start = self.argv.index(LAUNCH) + 1 if LAUNCH in self.argv and self.program in ("sbatch", "bash") else 0
        return self.argv[start:] if start else None

    @property
    def kind(self) -> str:
        """The command without values: variables, program, task or script, names of flags."""
        if self.launch is not None:
            arguments = [_launch_argument(argument) for argument in self.launch]
            requeue = ["--requeue"] if "--requeue" in self.argv else []
            return " ".join([*self.environment, self.program, *requeue, LAUNCH, *arguments])
        own = self.argv[1 : self.argv.index("--") + 1] if "--" in self.argv else self.argv[1:]
        names = [argument for argument in own if not argument.startswith("-")][: NAMES[self.program]]
        flags = [argument.partition("=")[0] for argument in own if argument.startswith("-")]
        return " ".join([*self.environment, self.program, *names, *flags])


def _launch_argument(argument: str) -> str:
    if argument.startswith("-") or argument in LAUNCH_KEYWORDS:
        return argument
    return "OVERRIDE" if "=" in argument else "RECIPE"


def commands() -> list[Command]:
    """Return the commands in the order of the pages, without assignments of variables only."""
    parsed = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = [line for block in BLOCK.findall(text) for line in block.replace("\\\n", " ").splitlines()]
        parsed += [_command(page.name, line, True) for line in blocks]
        parsed += [_command(page.name, line, False) for line in INLINE.findall(ANY_BLOCK.sub("", text))]
    return [command for command in parsed if command.argv and command.argv[-1] != "TASK"]


def _command(page: str, line: str, in_block: bool) -> Command:
    argv = [argument.strip("[]") for argument in shlex.split(line, comments=True)]
    argv = [] if argv[:1] == ["export"] else argv
    environment = {}
    while argv and (assignment := ASSIGNMENT.fullmatch(argv[0])):
        environment[assignment[1]] = assignment[2]
        argv = argv[1:]
    return Command(page, environment, tuple(argv), in_block)
