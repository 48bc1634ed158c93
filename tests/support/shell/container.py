"""Scripts that the fake engines run as containers, and arguments of `docker run`."""

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
TMP = "/tmp"  # noqa: S108  in the container


@contextmanager
def running(rig: Rig, container: str = STAYS, **changes: str) -> Iterator[subprocess.Popen[str]]:
    """Start node.sh, and wait until its container runs."""
    rig.fake("container", container)
    with rig.start_node(**changes) as node:
        wait_for(rig.root / "fake" / "container.pid")
        yield node


def choose(rig: Rig, runtime: str, image: str) -> None:
    """Have node.sh start ``image`` with a runtime whose images are files."""
    rig.environment |= {"VERLJOB_RUNTIME": runtime, "VERLJOB_IMAGE": image, "VERLJOB_COMPILE_CACHE": "0"}


def chosen(rig: Rig) -> dict[str, str]:
    """Return the settings of `choose`, which are the rig's and not node.sh's defaults."""
    return {name: rig.environment[name] for name in ("VERLJOB_RUNTIME", "VERLJOB_IMAGE")}


def run_chosen(rig: Rig, node_id: int = 0, /, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run node.sh with the chosen image."""
    return rig.node(node_id, **{**chosen(rig), **changes})


def terminate(node: subprocess.Popen[str]) -> None:
    node.send_signal(signal.SIGTERM)
    node.communicate(timeout=10)


def values(argv: list[str], flag: str) -> list[str]:
    return [argv[index + 1] for index, argument in enumerate(argv) if argument == flag]


def mounted(argv: list[str]) -> dict[str, tuple[str, str]]:
    """Parse --mount flags: target to source and options."""
    mounts = {}
    for mount in values(argv, "--mount"):
        fields = dict(field.strip('"').partition("=")[::2] for field in mount.split(","))
        mounts[fields["target"]] = (
            fields.get("source", ""),
            ",".join(key for key in fields if key in {"readonly", "tmpfs"}),
        )
    return mounts
