"""`python3 -m verl_node.cluster`: looks at the cluster as a driver does, in a process of its own.

The supervisor never imports Ray. This process joins the cluster as a driver, reports as JSON lines which nodes are
alive until all that were named are, then runs a task on each of them and reports what it saw there.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

_POLL_S = 0.2
_MASKS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def main(arguments: Sequence[str] | None = None) -> int:
    """Report until the cluster is whole and every node ran a task; 0. Whoever started us ends us at the deadline."""
    parser = argparse.ArgumentParser(prog="python3 -m verl_node.cluster", description=__doc__)
    parser.add_argument("--address", required=True, help="of the GCS")
    parser.add_argument("--node-address", required=True, help="of this node")
    parser.add_argument("--node", action="append", required=True, help="address of a node that has to be there")
    parser.add_argument("--gpus", type=int, required=True, help="that each of them has to have")
    options = parser.parse_args(arguments)

    import ray  # after the arguments: it takes seconds

    ray.init(address=options.address, _node_ip_address=options.node_address, log_to_driver=False, logging_level="ERROR")
    alive = _wait_for(ray, options.node, options.gpus)
    _report("whole", nodes=[_seen(node) for node in alive])
    _report("tasks", nodes=_run_everywhere(ray, alive))
    ray.shutdown()
    return 0


def _wait_for(ray: Any, wanted: Sequence[str], gpus: int) -> list[dict[str, Any]]:
    """Poll until every wanted address is alive with its GPUs; a dead entry of the same address does not count."""
    before: list[str] | None = None
    while True:
        alive = [node for node in ray.nodes() if node["Alive"] and node["NodeManagerAddress"] in wanted]
        fit = [node for node in alive if _gpus(node) == gpus]
        here = sorted(node["NodeManagerAddress"] for node in fit)
        if here != before:
            _report("alive", addresses=here, nodes=[_seen(node) for node in alive])
            before = here
        if set(here) == set(wanted):
            return fit
        time.sleep(_POLL_S)


def _run_everywhere(ray: Any, nodes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0)(look)
    return list(
        ray.get(
            [
                task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
                    node["NodeManagerAddress"]
                )
                for node in nodes
            ]
        )
    )


def look(address: str) -> dict[str, Any]:
    """Return what a Ray worker process of that node sees."""
    return {
        "address": address,
        "host": socket.gethostname(),
        "python": sys.version.split()[0],
        "pid": os.getpid(),
        "masks": {name: os.environ[name] for name in _MASKS if name in os.environ},
    }


def _seen(node: dict[str, Any]) -> dict[str, Any]:
    resources = node["Resources"]
    return {"address": node["NodeManagerAddress"], "gpus": _gpus(node), "cpus": int(resources.get("CPU", 0))}


def _gpus(node: dict[str, Any]) -> int:
    return int(node["Resources"].get("GPU", 0))


def _report(kind: str, **fields: Any) -> None:
    print(json.dumps({"kind": kind, **fields}), flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
