"""Results of checks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """``severity`` is ok, idle (there is nothing to look at), warn, fail (69) or permission (77).

    Then what was seen and wanted, and the one-line fix.
    """

    severity: str
    seen: str = ""
    fix: str = ""
    wanted: str = ""


OK = Result("ok")
IDLE = Result("idle")


@dataclass(frozen=True)
class Outcome:
    """A check's answer on a host, and the seconds that it took."""

    check: str
    host: str
    severity: str
    seen: str = ""
    wanted: str = ""
    fix: str = ""
    seconds: float = 0.0

    @property
    def bad(self) -> bool:
        """Whether it makes the node unfit."""
        return self.severity in ("fail", "permission")

    def sentence(self) -> str:
        """Return what was seen and wanted in one line."""
        wanted = f" Wanted: {self.wanted}." if self.wanted else ""
        return f"{self.check}: {self.seen}{wanted}"
