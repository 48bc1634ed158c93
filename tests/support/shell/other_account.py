"""Runs scripts as another account of the node, which tries to disturb a job."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

UID = 65534
AS_OTHER = ("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups")
NEEDS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="runs commands as another account, which needs root")


def attack(folder: Path, script: str) -> None:
    """Run ``script`` in ``folder`` as the other account, even if the account cannot reach the folder by its path."""
    subprocess.run([*AS_OTHER, "bash", "-euc", script], cwd=folder, check=True, timeout=20)


def start(script: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start ``script`` in ``folder`` as the other account, and return after its first line of output."""
    process = subprocess.Popen([*AS_OTHER, "bash", "-ec", script], cwd=folder, stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    return process


def make_reachable(folder: Path) -> None:
    """Let other accounts enter ``folder`` and its parents."""
    for path in (folder, *folder.parents):
        if not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o055)


def shared_folder(folder: Path) -> Path:
    """Make a folder that every account may write to, like /tmp."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o1777)
    make_reachable(folder.parent)
    return folder


def contents(folder: Path) -> dict[str, str]:
    """Mode and text of every file below a folder: equal before and after an attack if the attack changed nothing."""
    listed = {}
    for path in sorted(folder.rglob("*")):
        text = os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else ""
        listed[str(path.relative_to(folder))] = f"{path.lstat().st_mode:o} {text}"
    return listed
