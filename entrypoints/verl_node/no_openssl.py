"""Blocks the import of OpenSSL in the supervisor, which saves a fifth of its memory.

asyncio and hashlib load it where it can be had; the control channel speaks plain TCP, with messages signed by Python's
own SHA-256. Only in the supervisor's process: others that import a module of this package keep what they may need.
"""

from __future__ import annotations

import sys

_RUN = sys.modules["__main__"].__spec__

if _RUN is not None and _RUN.name == "verl_node.__main__":
    for name in ("ssl", "_hashlib"):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # which makes an import of it fail
