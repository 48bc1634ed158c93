"""Another account of the node, which attacks: what it runs and makes is its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

UID = 65534
NEEDS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="takes the place of another account, which only root can")


def attack(folder: Path, script: str) -> None:
    """Run ``script`` in ``folder`` as that account, which need not be able to reach the folder by its path."""
    account = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
    subprocess.run([*account, "bash", "-euc", script], cwd=folder, check=True, timeout=10)


def content(folder: Path) -> dict[str, str]:
    """Every name below a folder, with the kind and text of what it is: two of these tell whether anything was done."""
    found = {}
    for path in sorted(folder.rglob("*")):
        text = os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else ""
        found[str(path.relative_to(folder))] = f"{path.lstat().st_mode:o} {text}"
    return found
