"""What a check answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """``severity`` is ok, warn, fail (69) or permission (77); ``seen`` says what was seen and wanted, ``fix`` what to do."""

    severity: str
    seen: str = ""
    fix: str = ""


OK = Result("ok")
