"""`python3 -m verl_node.ray_node.driver_main`: a Ray driver that watches the cluster form and tests every node.

The supervisor never imports Ray. This process does, while Ray starts, and waits for one line of JSON: the address of
the GCS, those of all nodes, this one first, and the GPUs of each. Then it joins the cluster as a driver. It reports as
lines of JSON which nodes are alive until all of them are, then runs an actor with all GPUs on each and reports what the
actors see.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from verl_node.gpu.visible_devices import MASKS

_POLL_S = 0.2


def main() -> int:
    """Report until every node is alive and ran an actor; 0. The supervisor ends this process at its deadline."""
    import ray  # first, since it takes seconds

    line = sys.stdin.readline()
    if not line:
        return 0
    order = json.loads(line)
    _connect(ray, order["gcs"], order["nodes"][0])
    alive = _wait_for(ray, order["nodes"], order["gpus"])
    _report("complete", nodes=[_summary(node) for node in alive])
    _report("actors", nodes=_run_actors(ray, alive))
    ray.shutdown()
    return 0


def _connect(ray: Any, gcs: str, address: str) -> None:
    """Join the cluster as a driver; retry while this node's raylet listens but has not registered.

    Seen with Ray 2.54.1 started without the patches of fast_start.py: ConnectionError 5 s after the raylet listened.
    """
    while True:
        try:
            ray.init(address=gcs, _node_ip_address=address, log_to_driver=False, logging_level="ERROR")
        except ConnectionError as error:
            print(f"ray.init failed, trying again: {error!r}", file=sys.stderr, flush=True)  # noqa: T201
            time.sleep(_POLL_S)
        else:
            return


def _wait_for(ray: Any, addresses: Sequence[str], gpus: int) -> list[dict[str, Any]]:
    """Poll until every address is alive with its GPUs; a dead entry of the same address does not count."""
    before: list[str] | None = None
    while True:
        alive = [node for node in ray.nodes() if node["Alive"] and node["NodeManagerAddress"] in addresses]
        ready = [node for node in alive if _gpus(node) == gpus]
        ready_addresses = sorted(node["NodeManagerAddress"] for node in ready)
        if ready_addresses != before:
            _report("alive", addresses=ready_addresses, nodes=[_summary(node) for node in alive])
            before = ready_addresses
        if set(ready_addresses) == set(addresses):
            return ready
        time.sleep(_POLL_S)


def _run_actors(ray: Any, nodes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    actors = [
        ray.remote(Scout)
        .options(
            num_cpus=0,
            num_gpus=_gpus(node),
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        )
        .remote()
        for node in nodes
    ]
    reports = [actor.report.remote(node["NodeManagerAddress"]) for actor, node in zip(actors, nodes)]
    return list(ray.get(reports))


class Scout:
    """An actor with all GPUs of its node, as verl's workers together are: Ray has set its mask."""

    def report(self, address: str) -> dict[str, Any]:
        """Return what a Ray worker process of that node sees."""
        return {
            "address": address,
            "host": socket.gethostname(),
            "python": sys.version.split()[0],
            "pid": os.getpid(),
            "masks": {name: os.environ[name] for name in MASKS if name in os.environ},
        }


def _summary(node: dict[str, Any]) -> dict[str, Any]:
    resources = node["Resources"]
    return {"address": node["NodeManagerAddress"], "gpus": _gpus(node), "cpus": int(resources.get("CPU", 0))}


def _gpus(node: dict[str, Any]) -> int:
    return int(node["Resources"].get("GPU", 0))


def _report(kind: str, **fields: Any) -> None:
    print(json.dumps({"kind": kind, **fields}), flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
