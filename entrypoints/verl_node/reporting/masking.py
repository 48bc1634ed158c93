"""Masks secrets in output and files: the job's own values, and text that looks like a secret.

Standard output and error go through a `Masking`, files through `masked`; slurm/lib/node/secrets.sh does
the same for Ray's logs, with the same patterns.
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

LONGEST = 4096
"""Characters; of a longer secret some may be left where a text was cut."""

# Tokens of Hugging Face, GitHub, GitLab, AWS and OpenAI by their published prefixes; a variable named like a secret; a
# URL or a proxy with a password. The time of each is linear: a pattern begins with a word, and what may follow it has
# no end before it has no such word again. A line of a MiB must hold up neither the supervisor nor the end of a job.
#
# A value of a name in TOKEN, SECRET, API_KEY or ACCESS_KEY has 16 characters or more: PAD_TOKEN=151643 stays. Passwords
# are shorter. PWD, PASS, KEY and PAT count behind an underscore alone and CREDENTIALS anywhere, and none of them before
# a path: PWD=/home/x, OLDPWD=…, BYPASS=…, PATH=…, GOOGLE_APPLICATION_CREDENTIALS=/home/x/key.json and a bare KEY=value
# stay. Names in small letters stay too: pad_token=… is a model's, prompt_key=… a training's.
PATTERNS = (
    "hf_[A-Za-z0-9]{30,}",
    "gh[oprsu]_[A-Za-z0-9]{36,}",
    "github_pat_[A-Za-z0-9_]{40,}",
    "glpat-[A-Za-z0-9_-]{20,}",
    "AKIA[A-Z0-9]{16,}",
    "sk-[A-Za-z0-9_-]{32,}",
    "(TOKEN|SECRET|API_KEY|ACCESS_KEY)=[A-Za-z0-9._~+/-]{16,}",
    "PASS(WORD|WD|PHRASE)=[A-Za-z0-9._~+/!@#$%^&*=:?-]{8,}",
    "_(PASS|PWD)=[A-Za-z0-9_+!@#$%^&*=:?-][A-Za-z0-9._~+/!@#$%^&*=:?-]{7,}",
    "(_KEY|_PAT|CREDENTIALS?)=[A-Za-z0-9_+-][A-Za-z0-9._~+/-]{15,}",
    "[Pp][Rr][Oo][Xx][Yy]=[A-Za-z0-9._~%!$&*+-]*:[A-Za-z0-9._~%!$&*+=-]+@",
    "://[A-Za-z0-9._~%!$&*+=-]*:[A-Za-z0-9._~%!$&*+=-]+@",
)
WORD = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~+/!@#$%^&*=:?-"
"""Every character that a pattern may take: where another stands, a text is cut without cutting a secret."""

_PATTERN = re.compile("|".join(f"(?:{pattern})" for pattern in PATTERNS))
_known: set[str] = set()


def remember(secrets: Iterable[str]) -> None:
    """Mask these values from now on, also as they look inside JSON."""
    for secret in secrets:
        if len(secret) >= SHORTEST:
            _known.update((secret, json.dumps(secret)[1:-1]))


def masked(text: str) -> str:
    """Return the text without secrets."""
    return _PATTERN.sub(_keep_the_frame, _without_known(text))


def beginning(text: str, length: int) -> str:
    """Return the text without secrets, and no longer than that: cut behind a word, since one may be a secret.

    Which values are secrets another process may know, that masks it again.
    """
    text = masked(text)
    return text if len(text) <= length else f"{text[:length].rstrip(WORD)}…"


def rest(text: str) -> str:
    """Return the rest of a text that was cut off before it, without secrets and its first LONGEST characters.

    The text may begin with the second half of a secret, which nothing tells any more.
    """
    return masked(text)[LONGEST:]


def split(text: str) -> tuple[str, str]:
    """Split a text that will go on: what can be masked now, and the end, in which a secret may have begun."""
    text = _without_known(text)
    at = max(len(text) - LONGEST, 0)
    head = text[max(at - LONGEST, 0) : at]
    between = len(head.rstrip(WORD))
    if between:
        at -= len(head) - between
    else:  # nothing but one word of LONGEST characters: look for secrets in it
        cut = next((found for found in _PATTERN.finditer(text) if found.start() < at < found.end()), None)
        at = (cut.start() or len(text)) if cut else at
    return text[:at], text[at:]


def _without_known(text: str) -> str:
    for secret in sorted(_known, key=len, reverse=True):  # one may be a part of another
        text = text.replace(secret, MASK)
    return text


def _keep_the_frame(found: re.Match[str]) -> str:
    """Leave a proxy's URL one, and a variable its name."""
    text = found[0]
    if text.startswith("://"):
        return f"://{MASK}@"
    name, equals, _ = text.partition("=")
    if not equals:
        return MASK
    return f"{name}={MASK}@" if name.lower() == "proxy" else f"{name}={MASK}"


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
