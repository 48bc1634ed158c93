"""Stand-in for Ray, as the module and the command `ray`: takes Ray's times and no CPU. For growth.py and supervisor.py.

verl_node's ray_node/start.py and driver_main.py run on it unchanged. Its GCS is a list of nodes behind a socket. The
times count from the command to start, although verl_node imports a real Ray before. Settings:

STANDIN_RAY_HEAD_S, STANDIN_RAY_GCS_S   seconds from `ray start --head` to its node, and to its GCS
STANDIN_RAY_JOIN_S                      seconds from `ray start --address` to its node, after the head
STANDIN_RAY_DELAY=HOST=SECONDS, STANDIN_RAY_FAIL=HOST   one node is late, or exits with 1
"""

from __future__ import annotations

import json
import os
import signal
import socket
import socketserver
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

# Measured on an idle machine: docs/benchmarks.md.
HEAD_S, GCS_S, JOIN_S = (
    float(os.environ.get(f"STANDIN_RAY_{name}_S", default))
    for name, default in {"HEAD": "5.7", "GCS": "1.7", "JOIN": "3.2"}.items()
)
_POLL_S = 0.1
_GCS_FILE = Path(tempfile.gettempdir(), "standin-ray")  # the address of the node's GCS, for init(address="auto")


class _Gcs(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128
    nodes: dict[int, dict[str, Any]]


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        """Register the node of a line, if it has one, while it is connected; answer with all nodes."""
        nodes: dict[int, dict[str, Any]] = self.server.nodes  # type: ignore[attr-defined]
        for line in self.rfile:
            nodes.update({id(self): node} if (node := json.loads(line)) else {})
            self.wfile.write(json.dumps(list(nodes.values())).encode() + b"\n")
        nodes.pop(id(self), None)


class _Client:
    """A connection to the GCS; waits until it listens."""

    def __init__(self, gcs: str) -> None:
        host, _, port = gcs.rpartition(":")
        while True:
            try:
                self._socket = socket.create_connection((host, int(port)))
                break
            except OSError:
                time.sleep(_POLL_S)
        self.address = str(self._socket.getsockname()[0])
        self._file = self._socket.makefile("rw")

    def nodes(self, register: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        self._file.write(f"{json.dumps(register or {})}\n")
        self._file.flush()
        return list(json.loads(self._file.readline()))


def start(flags: dict[str, str]) -> None:
    """Run as `ray start --block`."""
    began, host = time.monotonic(), os.environ.get("SLURMD_NODENAME", "")
    late, _, delay_s = os.environ.get("STANDIN_RAY_DELAY", "").partition("=")
    began += float(delay_s) if late == host and delay_s else 0.0
    if os.environ.get("STANDIN_RAY_FAIL") == host != "":
        sys.exit(f"STANDIN_RAY_FAIL={host}")
    gcs = flags.get("address") or f"{flags['node-ip-address']}:{flags['port']}"
    _GCS_FILE.write_text(gcs)
    if "head" in flags:
        _until(began + GCS_S)
        server = _Gcs((flags["node-ip-address"], int(flags["port"])), _Connection)
        server.nodes = {}
        threading.Thread(target=server.serve_forever, daemon=True).start()
    _until(began + (HEAD_S if "head" in flags else JOIN_S))
    client = _Client(gcs)
    while "head" not in flags and not client.nodes():
        time.sleep(_POLL_S)
    address = flags.get("node-ip-address", client.address)
    manager = socket.create_server((address, int(flags.get("node-manager-port", 0))))
    resources = {"GPU": int(flags["num-gpus"]), "CPU": int(flags["num-cpus"])}
    client.nodes({"NodeID": address, "NodeManagerAddress": address, "Alive": True, "Resources": resources})
    Path("/proc/self/comm").write_text("raylet")  # verl_node finds the process by this name
    signal.pause()
    manager.close()


def _until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def main(args: Sequence[str], prog_name: str = "ray") -> None:
    parts = [part for argument in args[1:] for part in argument.split("=", 1)]
    names = [index for index, part in enumerate(parts) if part.startswith("--")]
    start({parts[i][2:]: "".join(parts[i + 1 : j]) for i, j in zip(names, [*names[1:], len(parts)])})


_driver: list[_Client] = []


def init(address: str, **_: Any) -> None:
    _driver.append(_Client(os.environ.get("RAY_ADDRESS") or _GCS_FILE.read_text() if address == "auto" else address))


def nodes() -> list[dict[str, Any]]:
    return _driver[0].nodes()


def shutdown() -> None:
    _driver.clear()


def get(values: Sequence[Any]) -> list[Any]:
    return list(values)


def remote(actor: type) -> Any:
    """Return a factory of actors of the class; their methods run at once in this process, with Ray's GPU mask."""

    def options(num_gpus: int = 0, **_: Any) -> Any:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(num_gpus)))
        return SimpleNamespace(remote=lambda: _Handle(actor()))

    return SimpleNamespace(options=options)


class _Handle:
    """A handle of an actor: ``handle.method.remote(...)`` calls ``method(...)``."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=getattr(self._actor, method))


def _module(name: str, **content: Any) -> None:
    sys.modules[name] = ModuleType(name)
    vars(sys.modules[name]).update(content)


_module("ray.scripts", scripts=SimpleNamespace(cli=SimpleNamespace(main=main)))
_module("ray.util")
_module("ray.util.scheduling_strategies", NodeAffinitySchedulingStrategy=lambda *_, **__: None)

if __name__ == "__main__":
    main(sys.argv[1:])
