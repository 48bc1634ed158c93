"""Real supervisors of several nodes on this machine at 127.0.0.2, .3 …, with stand-ins for Ray, driver and training."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.paths import ENTRYPOINTS, SUPERVISOR_FAKES

END_S = 15

RECIPE = """\
platform: cpu
accelerator: true
module: stub_training
data: demo
model: demo:qwen2-tiny
overrides: {trainer.save_freq: 1}
"""


class Job:
    """A job of ``nodes`` nodes, n0, n1 …, in ``folder``."""

    def __init__(self, folder: Path, nodes: int, python: Path = Path(sys.executable), ray: str = "2.60.0") -> None:
        self.folder = folder
        self.run_dir = folder / "run"
        self.ray_dir = Path(tempfile.mkdtemp(prefix="ray-"))  # short: sockets are in it
        self.nodes = nodes
        self.python = str(python)
        self.first_port = free_ports(400)
        self.path = f"{SUPERVISOR_FAKES}:{os.environ['PATH']}"
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.leases: dict[int, int] = {}
        (folder / "token").write_text("0123456789abcdef")
        (folder / "stub.yaml").write_text(RECIPE)
        (folder / "verl" / "verl" / "version").mkdir(parents=True)
        (folder / "verl" / "verl" / "version" / "version").write_text("0.9.1\n")
        (folder / "site" / f"ray-{ray}.dist-info").mkdir(parents=True)
        (folder / "site" / f"ray-{ray}.dist-info" / "METADATA").write_text(f"Name: ray\nVersion: {ray}\n")
        self.run_dir.mkdir()

    def environ(self, node: int) -> dict[str, str]:
        """Return the environment that launch.sh and node.sh give to this node."""
        first = self.first_port
        block = first + 100 + 100 * node
        return {
            "PATH": self.path,
            "PYTHONPATH": f"{ENTRYPOINTS}:{self.folder}/site",
            "HOME": str(self.folder),
            "REAL_PYTHON": self.python,
            "FAKE_TRAINING": "echo step:1",
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": f"n[0-{self.nodes - 1}]",
            "SLURM_NNODES": str(self.nodes),
            "SLURM_NODEID": str(node),
            "SLURMD_NODENAME": f"n{node}",
            "SLURM_CPUS_PER_TASK": "32",
            "SLURM_GPUS_ON_NODE": "8",
            "VERLJOB_HEAD_ADDRESS": "127.0.0.2",
            "VERLJOB_NODE_ADDRESS": f"127.0.0.{node + 2}",
            "VERLJOB_HEAD_PORTS": f"{first},{first + 1},{first + 2}",
            "VERLJOB_PORT_BLOCK": f"{block}-{block + 99}",
            "VERLJOB_IMAGE_DIGEST": "sha256:1",
            "VERLJOB_JOIN_TIMEOUT_S": "10",
            "VERLJOB_LEASE": str(self.folder / f"lease{node}"),
            "VERLJOB_OUT": str(self.folder / f"out{node}"),
            "VERLJOB_RAY_TEMP_DIR": str(self.ray_dir),
            "VERLJOB_RECIPE": str(self.folder / "stub.yaml"),
            "VERLJOB_RUN_DIR": str(self.run_dir),
            "VERLJOB_SILENCE_S": "8",
            "VERLJOB_TOKEN_FILE": str(self.folder / "token"),
            "VERLJOB_VERL": str(self.folder / "verl"),
        }

    def start(self, *nodes: int, arguments: Sequence[str] = (), **changes: str) -> None:
        """Start these nodes, by default all, with changes to their environment."""
        for node in nodes or range(self.nodes):
            lease = self.folder / f"lease{node}"
            os.mkfifo(lease)
            self.leases[node] = os.open(lease, os.O_RDWR)
            with (self.folder / f"output{node}").open("wb") as output:
                self.processes[node] = subprocess.Popen(
                    [*self.apart(), self.python, "-m", "verl_node", *arguments],
                    env={**self.environ(node), **changes},
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )

    def apart(self) -> list[str]:
        """Return the command that mounts a separate Ray folder for a node at the same path, as a container does."""
        as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
        mount_and_become = 'mount -t tmpfs node "$0" && exec "$@"'
        return ["unshare", "--mount", *as_root, "sh", "-c", mount_and_become, str(self.ray_dir)]

    def end(self, node: int, timeout_s: float = END_S) -> int:
        """Wait until this node has ended; return its exit code."""
        return self.processes[node].wait(timeout_s)

    def output(self, node: int) -> str:
        return (self.folder / f"output{node}").read_text()

    def until(self, node: int, text: str) -> None:
        """Wait until the output of a node matches a pattern."""
        end = time.monotonic() + END_S
        while not re.search(text, self.output(node), re.MULTILINE):
            assert time.monotonic() < end, self.output(node)
            assert self.processes[node].poll() is None, self.output(node)
            time.sleep(0.05)

    def verdict(self, node: int) -> dict[str, str]:
        text = (self.folder / f"out{node}" / "verdict").read_text()
        return dict(line.split("=", 1) for line in text.splitlines())

    def result(self) -> dict[str, Any]:
        """Return what the head left for launch.sh's result.json."""
        phases = [line.split("=") for line in (self.run_dir / "phases").read_text().splitlines()]
        verdict = self.verdict(0)
        return {**verdict, "code": int(verdict["code"]), "phases": {name: float(seconds) for name, seconds in phases}}

    def leftovers(self) -> list[str]:
        """Return the running processes of this job; zombies are not included."""
        found = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if str(self.folder).encode() in environ.read_bytes():
                    found.append((environ.parent / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
        return found

    def close(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            process.wait(END_S)
        for lease in self.leases.values():
            os.close(lease)
        self.ray_dir.rmdir()
        _taken.discard(self.first_port)


def free_ports(count: int) -> int:
    """Return the first of ``count`` ports below the ephemeral range, of which the first is free."""
    start = 10000 + os.getpid() % 20 * count
    for first in range(start, 32000, count):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", first))
            except OSError:
                continue
        if first not in _taken:
            _taken.add(first)
            return first
    raise RuntimeError("no free ports")


_taken: set[int] = set()
