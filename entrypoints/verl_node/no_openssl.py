"""Blocks the import of OpenSSL in the supervisor, which saves a fifth of its memory.

asyncio and hashlib import it if they can; the control channel is plain TCP, with MACs by Python's own SHA-256. It is
blocked only in the supervisor's process, not in others that import modules of this package.
"""

from __future__ import annotations

import sys

_RUN = sys.modules["__main__"].__spec__

if _RUN is not None and _RUN.name == "verl_node.__main__":
    for name in ("ssl", "_hashlib"):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # makes the import fail
