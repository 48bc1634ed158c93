"""Results of checks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """Return value of a check's function.

    ``severity`` is ok, idle (nothing to check), warn, fail (exit code 69) or permission (77). ``fix`` is one line.
    """

    severity: str
    seen: str = ""
    fix: str = ""
    expected: str = ""


OK = Result("ok")
IDLE = Result("idle")


@dataclass(frozen=True)
class Outcome:
    """Result of a check on a host, and its duration in seconds."""

    check: str
    host: str
    severity: str
    seen: str = ""
    expected: str = ""
    fix: str = ""
    seconds: float = 0.0

    @property
    def bad(self) -> bool:
        """Whether the node cannot be used."""
        return self.severity in ("fail", "permission")

    def sentence(self) -> str:
        """Return the seen and the expected state in one line."""
        expected = f" Expected: {self.expected}." if self.expected else ""
        return f"{self.check}: {self.seen}{expected}"
