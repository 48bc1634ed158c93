"""What a check answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """``severity`` is ok, warn, fail (69) or permission (77); ``seen`` is what was seen and wanted."""

    severity: str
    seen: str = ""
    fix: str = ""


OK = Result("ok")
