"""Python's tracebacks in a log where processes write between each other's lines."""

from __future__ import annotations

import re

from verl_node.explain import lines

BEGIN = b"Traceback (most recent call last)"
_MOST_LINES = 400
# They carry another's exception, or are somebody's answer to another's end: never the root.
_CARRIES = re.compile(rb"^(?:ray\.exceptions\.)?RayTaskError\(|^(?:\w+\.)*RemoteTraceback:")
_ANSWERS = re.compile(
    rb"^(?:[\w.]*\.)?(?:ChildFailedError|SystemExit|KeyboardInterrupt|CancelledError|CalledProcessError|BrokenPipeError"
    rb"|ConnectionResetError|ConnectionAbortedError|EOFError|BrokenProcessPool|ProcessExitedException|SignalException)\b"
)
_QUIET = (b"Exception ignored in", b"exception ignored in")
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
    mine, indent = lines.writer(first), first.find(BEGIN) - len(first) + len(lines.bare(first))
    position = _end(text, begin) + 1
    for _ in range(_MOST_LINES):
        if position >= len(text):
            return None
        line = text[position : _end(text, position)]
        if lines.writer(line) == mine:
            words = lines.bare(line)[max(indent, 0) :] if lines.bare(line)[:indent].isspace() else lines.bare(line)
            if words.startswith(BEGIN):
                return None
            if not _INSIDE.match(words) and not _CARRIES.match(words):
                return None if _ANSWERS.match(words) else (position, line)
        position += len(line) + 1
    return None


def _end(text: bytes, position: int) -> int:
    end = text.find(b"\n", position)
    return len(text) if end < 0 else end
