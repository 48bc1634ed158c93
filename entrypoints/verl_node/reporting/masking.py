"""Masks secrets in output and files: the job's own values, and text that looks like a secret.

Standard output and error go through a `Masking` stream, files through `masked`; slurm/lib/node/secrets.sh masks Ray's
logs with the same patterns (secret_patterns.txt).
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

MASK = "***"
SHORTEST = 6
"""Characters; a shorter value is part of too many words that are not secret."""

LONGEST = 4096
"""Characters; part of a longer secret may remain at a place where a text was cut."""

PATTERNS = tuple(
    line
    for line in Path(__file__).with_name("secret_patterns.txt").read_text().splitlines()
    if line[:1] not in ("", "#")
)
WORD = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~+/!@#$%^&*=:?-"
"""All characters that a pattern can match: at any other character a text can be cut without cutting a secret."""

_PATTERN = re.compile("|".join(f"(?:{pattern})" for pattern in PATTERNS))
_known: set[str] = set()


def remember(secrets: Iterable[str]) -> None:
    """Mask these values from now on, also in their form inside JSON."""
    for secret in secrets:
        if len(secret) >= SHORTEST:
            _known.update((secret, json.dumps(secret)[1:-1]))


def masked(text: str) -> str:
    """Return the text with secrets masked."""
    return _PATTERN.sub(_mask_match, _without_known(text))


def beginning(text: str, length: int) -> str:
    """Return the first ``length`` characters with secrets masked, cut after a whole word, which may be a secret.

    Another process may know more secret values, and mask the text again.
    """
    text = masked(text)
    return text if len(text) <= length else f"{text[:length].rstrip(WORD)}…"


def rest(text: str) -> str:
    """Return a text that was cut at its beginning, with secrets masked, without its first LONGEST characters.

    It may begin with the second half of a secret, which cannot be recognised.
    """
    return masked(text)[LONGEST:]


def split(text: str) -> tuple[str, str]:
    """Split a text that continues: into a part that can be masked now, and the end, in which a secret may begin."""
    text = _without_known(text)
    at = max(len(text) - LONGEST, 0)
    head = text[max(at - LONGEST, 0) : at]
    between = len(head.rstrip(WORD))
    if between:
        at -= len(head) - between
    else:  # a single word of LONGEST characters: search it for secrets
        cut = next((match for match in _PATTERN.finditer(text) if match.start() < at < match.end()), None)
        at = (cut.start() or len(text)) if cut else at
    return text[:at], text[at:]


def _without_known(text: str) -> str:
    for secret in sorted(_known, key=len, reverse=True):  # one may contain another
        text = text.replace(secret, MASK)
    return text


def _mask_match(match: re.Match[str]) -> str:
    """Return the mask of a match; a URL stays a URL, a variable keeps its name."""
    text = match[0]
    if text.startswith("://"):
        return f"://{MASK}@"
    name, equals, _ = text.partition("=")
    if not equals:
        return MASK
    return f"{name}={MASK}@" if name.lower() == "proxy" else f"{name}={MASK}"


class Masking(io.TextIOBase):
    """A text stream that masks each piece that it passes on; `print` writes each of its arguments as one piece."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text with secrets masked."""
        self._stream.write(masked(text))
        return len(text)

    def flush(self) -> None:
        """Flush the stream below."""
        self._stream.flush()

    def fileno(self) -> int:
        """Return the descriptor of the stream below, which masks nothing."""
        return self._stream.fileno()
