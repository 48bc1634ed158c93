"""Containers as the fake engines play them, and what they were started with."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.shell.rig import Rig
from tests.support.waiting import wait_for

STAYS = (
    'echo $$ > "$FAKE/container.pid"; trap "exit 143" TERM; while :; do read -t 0.1 < /dev/null || sleep 0.1; done\n'
)
STAYS_DEAF = STAYS.replace("exit 143", "")
TMP = "/tmp"  # noqa: S108  the container's own


@contextmanager
def running(rig: Rig, container: str = STAYS, **more: str) -> Iterator[subprocess.Popen[str]]:
    """node.sh with its container at work."""
    rig.fake("container", container)
    with rig.start_node(**more) as node:
        wait_for(rig.root / "fake" / "container.pid")
        yield node


def terminate(node: subprocess.Popen[str]) -> None:
    node.send_signal(signal.SIGTERM)
    node.communicate(timeout=10)


def values(argv: list[str], flag: str) -> list[str]:
    return [argv[index + 1] for index, word in enumerate(argv) if word == flag]


def mounted(argv: list[str]) -> dict[str, tuple[str, str]]:
    """Target → source, and the rest of the mount's words."""
    found = {}
    for mount in values(argv, "--mount"):
        words = dict(word.strip('"').partition("=")[::2] for word in mount.split(","))
        found[words["target"]] = (
            words.get("source", ""),
            ",".join(key for key in words if key in {"readonly", "tmpfs"}),
        )
    return found
