"""Python's tracebacks in a log where processes write between each other's lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from verl_node.explain import lines

BEGINS = (
    b"Traceback (most recent call last)",
    b"Unhandled error (suppress with",
    b"Exception raised in creation task: ",
    b"ray.exceptions.RayTaskError",
)
"""Python's; Ray's of what nobody fetched, of an actor that was not made, of one whose first lines are elsewhere."""
_MOST_LINES = 400
# They carry another's exception, or are somebody's answer to another's end: never the root.
_CARRIES = re.compile(
    rb"^(?:ray\.exceptions\.)?RayTaskError\b|^(?:\w+\.)*RemoteTraceback:|^ray::|^The above exception was the direct"
    rb"|^(?:ray\.exceptions\.)?ActorDiedError: The actor died because of an error raised in its creation"
    rb"|^\w+: Caught \w+ in \w+ (?:worker process|\d)"
)
_CHAINED = b"The above exception was the direct cause"
_CHAINED_BYTES = 200
_ANSWERS = re.compile(
    rb"^(?:[\w.]*\.)?(?:ChildFailedError|SystemExit|KeyboardInterrupt|CancelledError|CalledProcessError|BrokenPipeError"
    rb"|ConnectionResetError|ConnectionAbortedError|EOFError|BrokenProcessPool|ProcessExitedException|SignalException)\b"
)
_QUIET = (b"Exception ignored in", b"exception ignored in")
# The first frame of what a process only meets while it tidies up.
_TIDIES = re.compile(rb"File \"[^\"]*(?:multiprocessing/resource_tracker\.py\"|\", line \d+, in __del__)")
_INSIDE = re.compile(rb"^(?:\s|$|File \"|\^|~|\[repeated |\[Previous line repeated)")
_FRAME = re.compile(r"^ *File \"(?P<path>[^\"]+)\", line (?P<number>\d+)(?:,? in (?P<function>\S+))?")
_PACKAGES = re.compile(r"^.*/(?:site|dist)-packages/")
_PYTHONS_OWN = re.compile(r"^<|/lib/python3\.\d+/(?!site-packages/|dist-packages/)")


@dataclass(frozen=True)
class Frame:
    """One call of a traceback; the path of an installed package from its name on."""

    path: str
    number: int
    function: str

    @property
    def pythons_own(self) -> bool:
        """Whether it is the standard library's."""
        return bool(_PYTHONS_OWN.search(self.path))

    def __str__(self) -> str:
        return f"{self.path}, line {self.number}, in {self.function}"


def root(text: bytes, at: int) -> tuple[int, bytes] | None:
    """Return offset and line of the exception that the traceback at ``at`` ends with.

    None for one that names no cause: it was ignored, is the answer to another's end, or is cut off.
    """
    begin = text.rfind(b"\n", 0, at) + 1
    before = text[text.rfind(b"\n", 0, max(begin - 1, 0)) + 1 : begin]
    if any(word in before for word in _QUIET):
        return None
    first = text[begin : _end(text, begin)]
    mine, indent = lines.writer(first), at - begin - len(first) + len(lines.bare(first))
    position = _end(text, begin) + 1
    for count in range(_MOST_LINES):
        if position >= len(text):
            return None
        line = text[position : _end(text, position)]
        if lines.writer(line) == mine:
            words = lines.bare(line)[max(indent, 0) :] if lines.bare(line)[:indent].isspace() else lines.bare(line)
            if _begins(words) or (not count and _TIDIES.search(words)):
                return None
            if not _INSIDE.match(words) and not _CARRIES.match(words):
                if not _ANSWERS.match(words):
                    return position, line
                if _CHAINED not in text[position : position + len(line) + _CHAINED_BYTES]:
                    return None
        position += len(line) + 1
    return None


def leading_to(text: bytes, exception: bytes) -> list[str]:
    """Return the lines of the traceback at the end of ``text`` that the line ``exception`` of its process closes."""
    mine = lines.writer(exception)
    found: list[str] = []
    for line in reversed(text.splitlines()[-_MOST_LINES:]):
        words = lines.bare(line)
        if lines.writer(line) != mine:
            continue
        inside = _INSIDE.match(words) or _CARRIES.match(words)
        if inside or _begins(words):
            found.insert(0, words.decode("utf-8", "replace"))
        if not inside:
            break
    return found


def following(text: bytes) -> list[str]:
    """Return the calls right after a line, the innermost last; after a crash of native code they stand upside down."""
    found: list[str] = []
    for line in text.splitlines():
        words = lines.bare(line).decode("utf-8", "replace")
        if _FRAME.match(words):
            found.append(words)
        elif words.strip() and not words.startswith((" ", "Current thread", "Thread ", "Stack (most recent")):
            break
    return found if any(", in " in call for call in found) else found[::-1]


def frames(traceback: Sequence[str]) -> list[Frame]:
    """Return the calls of a traceback, the innermost last."""
    found = [match for match in map(_FRAME.match, traceback) if match]
    return [Frame(_PACKAGES.sub("", call["path"]), int(call["number"]), call["function"] or "?") for call in found]


def _begins(words: bytes) -> bool:
    return words.startswith(BEGINS) or words.startswith(b"Original " + BEGINS[0])


def tells(words: bytes) -> bool:
    """Tell whether an exception is more than the carrier of another, or somebody's answer to another's end."""
    return not _CARRIES.match(words) and not _ANSWERS.match(words)


def _end(text: bytes, position: int) -> int:
    end = text.find(b"\n", position)
    return len(text) if end < 0 else end
