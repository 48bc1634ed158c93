"""What this process must never write: the job's own secrets, by value, and what looks like one.

Standard output and error go through a `Masking`, files through `masked`; slurm/lib/secrets.sh does the same for Ray's
logs, with the same patterns.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable
from typing import TextIO

MASK = "***"
SHORTEST = 6
"""Characters; a shorter value is found in too many words that are no secret."""

# Tokens of Hugging Face, GitHub, GitLab, AWS and OpenAI by their published prefixes, and a variable named like one.
PATTERNS = (
    "hf_[A-Za-z0-9]{30,}",
    "gh[oprsu]_[A-Za-z0-9]{36,}",
    "github_pat_[A-Za-z0-9_]{40,}",
    "glpat-[A-Za-z0-9_-]{20,}",
    "AKIA[A-Z0-9]{16}",
    "sk-[A-Za-z0-9_-]{32,}",
    "[A-Z_]+(TOKEN|PASSWORD|SECRET|API_KEY|ACCESS_KEY)=[A-Za-z0-9._~+/-]{16,}",
    "://[A-Za-z0-9._~%-]*:[A-Za-z0-9._~%!$&*+=-]+@",
)

_PATTERN = re.compile("|".join(f"(?:{pattern})" for pattern in PATTERNS))
_known: set[str] = set()


def remember(secrets: Iterable[str]) -> None:
    """Mask these values from now on, also as they look inside JSON."""
    for secret in secrets:
        if len(secret) >= SHORTEST:
            _known.update((secret, json.dumps(secret)[1:-1]))


def masked(text: str) -> str:
    """Return the text without secrets."""
    for secret in _known:
        text = text.replace(secret, MASK)
    return _PATTERN.sub(_keep_the_frame, text)


def _keep_the_frame(found: re.Match[str]) -> str:
    """Leave a proxy's URL one, and a variable its name."""
    text = found[0]
    if text.startswith("://"):
        return f"://{MASK}@"
    return f"{text.partition('=')[0]}={MASK}" if "=" in text else MASK


class Masking(io.TextIOBase):
    """A text stream that masks what it passes on, piece by piece: `print` writes each of its arguments as one."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Pass on the text without secrets."""
        self._stream.write(masked(text))
        return len(text)

    def flush(self) -> None:
        """Flush what was passed on."""
        self._stream.flush()

    def fileno(self) -> int:
        """Return the descriptor below, which masks nothing."""
        return self._stream.fileno()
