"""Another account of the node, which leaves things where the toolkit looks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

UID = 65534
AS_STRANGER = f"setpriv --reuid={UID} --regid={UID} --clear-groups"
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="takes the place of another user, which only root can")


def reachable(folder: Path) -> None:
    """Let other accounts come as far as ``folder``, down from the machine's temporary folder."""
    for each in (folder, *folder.parents):
        if not each.stat().st_mode & 0o001:
            each.chmod(each.stat().st_mode | 0o055)


def open_to_all(folder: Path) -> Path:
    """A folder like /tmp, made by root."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o1777)
    reachable(folder.parent)
    return folder


def does(script: str, folder: Path) -> None:
    """Run ``script`` in ``folder`` as the other account."""
    subprocess.run([*AS_STRANGER.split(), "bash", "-ec", script], cwd=folder, check=True, timeout=20)


def stays(script: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start ``script`` in ``folder`` as the other account; it prints a line when it is ready."""
    process = subprocess.Popen([*AS_STRANGER.split(), "bash", "-ec", script], cwd=folder, stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    return process
