"""Removes terminal control characters from text of logs and libraries."""

from __future__ import annotations

import re

# Whole sequences (ECMA-48), so that a colour leaves no "[31m": CSI; OSC, DCS and the like to their end; short ones.
_SEQUENCE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\n\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b[ -/]*[0-Z\\\\^-~]"
)
# C0, DEL and C1 except tab and newline; marks, embeddings and isolates that change the direction of text.
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_LINE_ENDS = re.compile("\r\n|[\x0b\x0c\x0d\x1c-\x1f\x85\u2028\u2029]")


def printable(text: str) -> str:
    """Return the text without control characters; tab and newline stay, other line ends become a space."""
    return _CONTROL.sub("", _LINE_ENDS.sub(_space, _SEQUENCE.sub("", text)))


def _space(match: re.Match[str]) -> str:
    return "\n" if match[0] == "\r\n" else " "
