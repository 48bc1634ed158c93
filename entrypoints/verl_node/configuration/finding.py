"""Findings of a configuration check: error, warning, note."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from verl_node.errors import BadTrainingConfig

ERROR, WARNING, NOTE = "error", "warning", "note"


@dataclass(frozen=True)
class Finding:
    """What is wrong with ``key`` (``cause``) and what to do (``fix``), a sentence each; an error ends the job."""

    severity: str
    key: str
    cause: str
    fix: str = ""

    def message(self) -> dict[str, str]:
        """Return it as the fields of a message."""
        return asdict(self)

    def sentence(self) -> str:
        """Return it as one line."""
        begin = "" if self.severity == NOTE else f"{self.severity}: "
        return f"{begin}{self.cause} {self.fix}".rstrip()


def error(key: str, cause: str, fix: str) -> Finding:
    """Return what no training can begin with."""
    return Finding(ERROR, key, cause, fix)


def warning(key: str, cause: str, fix: str) -> Finding:
    """Return what trains, though hardly as it was meant."""
    return Finding(WARNING, key, cause, fix)


def note(key: str, cause: str) -> Finding:
    """Return what is good to know."""
    return Finding(NOTE, key, cause)


def errors(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The errors among ``findings``."""
    return (finding for finding in findings if finding.severity == ERROR)


def require_none(findings: Sequence[Finding]) -> None:
    """Raise BadTrainingConfig with all errors of ``findings`` in one, if there are any."""
    wrong = list(errors(findings))
    if wrong:
        raise BadTrainingConfig(
            " ".join(found.cause for found in wrong), fix=" ".join(dict.fromkeys(found.fix for found in wrong))
        )
