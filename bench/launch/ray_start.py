"""Seconds from the start of two supervisors to a checked Ray cluster, with and without the patches of `ray start`.

    PYTHON bench/launch/ray_start.py [--launches 5]

PYTHON has `ray[default]`; needs root. Both nodes run on this machine at 127.0.0.2 and 127.0.0.3, without Slurm and
containers. The launches take turns with a copy of verl_node that supports no version of Ray in fast_start.py. Prints a
line for each launch, then the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.node import supervisor
from bench.node.supervisor import CHECKOUT

LAUNCH_TIMEOUT_S = 180
CPUS = str(max(1, (os.cpu_count() or 2) // 2))
PRIVATE = 'mount --bind "$0" "$1" && shift && exec "$@"'
WITHOUT = "\n\ndef supported(ray: Version) -> bool:\n    return False\n"


def launch(packages: Path) -> float:
    """Start both nodes with verl_node from ``packages``; return the seconds until the cluster is checked."""
    with tempfile.TemporaryDirectory(prefix="r-") as name:  # short: sockets are in it
        folder = Path(name)
        supervisor.lay_out(folder)
        first_port = supervisor.free_port_block()
        leases = [os.open(folder / role / "lease", os.O_RDWR) for role in supervisor.ROLES]
        begin = time.time()
        processes = [start(folder, node, packages, first_port) for node in range(len(supervisor.ROLES))]
        try:
            return cluster_checked(folder, processes) - begin
        finally:
            for process in processes:
                process.terminate()
                process.wait()
            for lease in leases:
                os.close(lease)


def start(folder: Path, node: int, packages: Path, first_port: int) -> subprocess.Popen[bytes]:
    """Start the supervisor of a node, with a private folder at the path of Ray's files, which all nodes share."""
    environment = {
        **supervisor.environment(folder, node, first_port),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(packages),
        "SLURM_CPUS_PER_TASK": CPUS,
        "SLURM_GPUS_ON_NODE": "0",
        "VERLJOB_PLATFORM": "cpu",
        "VERLJOB_RAY_TEMP_DIR": str(folder / "ray"),
        "VERLJOB_RECIPE": "cluster",
    }
    own = folder / supervisor.ROLES[node]
    for path in (own / "ray", folder / "ray"):
        path.mkdir(exist_ok=True)
    command = ["unshare", "--mount", "sh", "-c", PRIVATE, str(own / "ray"), str(folder / "ray"), sys.executable]
    with (own / "output").open("wb") as output:
        return subprocess.Popen(
            [*command, "-m", "verl_node"], cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT
        )


def cluster_checked(folder: Path, processes: Sequence[subprocess.Popen[bytes]]) -> float:
    """Return the time of the head's event that the cluster is checked; exit with both outputs if it fails."""
    events = folder / "run/events.jsonl"
    deadline = time.monotonic() + LAUNCH_TIMEOUT_S
    while time.monotonic() < deadline and all(process.poll() is None for process in processes):
        for event in map(json.loads, events.read_text().splitlines() if events.exists() else []):
            if (event["phase"], event["event"]) == ("cluster", "end"):
                return float(event["time"])
        time.sleep(0.1)
    sys.exit(f"no cluster:\n{supervisor.outputs(folder)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=5, help="of each kind, after one that is not counted")
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {"with the patches": [], "without": []}
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(CHECKOUT / "entrypoints" / "verl_node", Path(copy, "verl_node"))
        with Path(copy, "verl_node/ray_node/fast_start.py").open("a") as module:
            module.write(WITHOUT)
        packages = dict(zip(seconds, (CHECKOUT / "entrypoints", Path(copy))))
        for _ in range(options.launches + 1):
            for kind, folder in packages.items():
                seconds[kind].append(launch(folder))
                print(f"{kind}: {seconds[kind][-1]:.1f} s", flush=True)
    with_patches, without = (statistics.median(of_kind[1:]) for of_kind in seconds.values())
    print(f"medians: {with_patches:.1f} s with the patches, {without:.1f} s without, {CPUS} cores a node")


if __name__ == "__main__":
    main()
