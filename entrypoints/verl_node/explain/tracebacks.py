"""Python's tracebacks in a log where processes write between each other's lines."""

from __future__ import annotations

import re

from verl_node.explain import lines

BEGINS = (b"Traceback (most recent call last)", b"Unhandled error (suppress with", b"ray.exceptions.RayTaskError")
"""Python's, Ray's of a task whose answer nobody fetched, and of one whose first lines are in another log."""
_MOST_LINES = 400
# They carry another's exception, or are somebody's answer to another's end: never the root.
_CARRIES = re.compile(rb"^(?:ray\.exceptions\.)?RayTaskError\b|^(?:\w+\.)*RemoteTraceback:")
_ANSWERS = re.compile(
    rb"^(?:[\w.]*\.)?(?:ChildFailedError|SystemExit|KeyboardInterrupt|CancelledError|CalledProcessError|BrokenPipeError"
    rb"|ConnectionResetError|ConnectionAbortedError|EOFError|BrokenProcessPool|ProcessExitedException|SignalException)\b"
)
_QUIET = (b"Exception ignored in", b"exception ignored in")
# The first frame of what a process only meets while it tidies up.
_TIDIES = re.compile(rb"File \"[^\"]*(?:multiprocessing/resource_tracker\.py\"|\", line \d+, in __del__)")
_INSIDE = re.compile(rb"^(?:\s|$|File \"|\^|~|\[repeated |\[Previous line repeated)")


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
            if words.startswith(BEGINS) or (not count and _TIDIES.search(words)):
                return None
            if not _INSIDE.match(words) and not _CARRIES.match(words):
                return None if _ANSWERS.match(words) else (position, line)
        position += len(line) + 1
    return None


def tells(words: bytes) -> bool:
    """Tell whether an exception is more than the carrier of another, or somebody's answer to another's end."""
    return not _CARRIES.match(words) and not _ANSWERS.match(words)


def _end(text: bytes, position: int) -> int:
    end = text.find(b"\n", position)
    return len(text) if end < 0 else end
