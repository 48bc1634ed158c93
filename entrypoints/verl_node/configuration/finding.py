"""Findings of a configuration check: error, warning, note."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from verl_node.errors import BadTrainingConfig

ERROR, WARNING, NOTE = "error", "warning", "note"


@dataclass(frozen=True)
class Finding:
    """A problem of ``key`` (``cause``) and its ``fix``, a sentence each; an error ends the job."""

    severity: str
    key: str
    cause: str
    fix: str = ""

    def sentence(self) -> str:
        """Return it as one line."""
        prefix = "" if self.severity == NOTE else f"{self.severity}: "
        return f"{prefix}{self.cause} {self.fix}".rstrip()


def error(key: str, cause: str, fix: str) -> Finding:
    """Return a finding that prevents the training."""
    return Finding(ERROR, key, cause, fix)


def warning(key: str, cause: str, fix: str) -> Finding:
    """Return a finding about a training that will run, probably not as intended."""
    return Finding(WARNING, key, cause, fix)


def note(key: str, cause: str) -> Finding:
    """Return an informational finding."""
    return Finding(NOTE, key, cause)


def errors(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the errors of ``findings``."""
    return (finding for finding in findings if finding.severity == ERROR)


def require_no_errors(findings: Sequence[Finding]) -> None:
    """Raise BadTrainingConfig with all errors of ``findings``, if there are any."""
    wrong = list(errors(findings))
    if wrong:
        raise BadTrainingConfig(
            " ".join(found.cause for found in wrong), fix=" ".join(dict.fromkeys(found.fix for found in wrong))
        )
