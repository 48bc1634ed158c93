"""Memory and CPU time of the supervisors of a head and a worker while a training runs.

    .venv/bin/python bench/node/supervisor.py [--seconds 30]

Both nodes run on this machine at 127.0.0.2 and 127.0.0.3, without Slurm and containers. Ray is
bench/launch/standin_ray.py and the training sleeps, so that only the supervisors are measured. Each scans /proc, which
takes longer on a machine with many processes than in a container. Prints a line for each node.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
STANDIN_RAY = CHECKOUT / "bench" / "launch" / "standin_ray.py"
ROLES = ("head", "worker")
START_TIMEOUT_S = 60
STARTED = "training has begun"
TRAINING = f"import time\nprint({STARTED!r}, flush=True)\ntime.sleep(3600)\n"
RECIPE = "platform: cpu\naccelerator: true\nmodule: training\ndata: []\nmodel: null\noverrides: {}\n"
RAY_COMMAND = f'#!/bin/sh\nexec {sys.executable} -m ray "$@"\n'


def lay_out(folder: Path) -> None:
    """Write the recipe, the training, an installed Ray and a verl checkout, as far as the supervisor reads them."""
    files = {
        "recipe.yaml": RECIPE,
        "training.py": TRAINING,
        "token": "0123456789abcdef",
        "verl/verl/version/version": "0.9.1\n",
        "site/ray-2.60.0.dist-info/METADATA": "Name: ray\nVersion: 2.60.0\n",
        "bin/ray": RAY_COMMAND,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "bin/ray").chmod(0o755)
    (folder / "site/ray.py").symlink_to(STANDIN_RAY)
    (folder / "run").mkdir()
    for role in ROLES:
        (folder / role).mkdir()
        os.mkfifo(folder / role / "lease")


def environment(folder: Path, node: int, first_port: int) -> dict[str, str]:
    """Return the environment that launch.sh and node.sh give to a node of a job with two nodes."""
    own = folder / ROLES[node]
    block = first_port + 100 * (node + 1)
    return {
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "PYTHONPATH": f"{CHECKOUT}/entrypoints:{folder}/site",
        "HOME": str(own),
        "TMPDIR": str(own),
        "STANDIN_RAY_HEAD_S": "1",
        "STANDIN_RAY_GCS_S": "0.5",
        "STANDIN_RAY_JOIN_S": "1",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n[0-1]",
        "SLURM_NNODES": "2",
        "SLURM_NODEID": str(node),
        "SLURMD_NODENAME": f"n{node}",
        "SLURM_CPUS_PER_TASK": "32",
        "SLURM_GPUS_ON_NODE": "8",
        "VERLJOB_HEAD_ADDRESS": "127.0.0.2",
        "VERLJOB_NODE_ADDRESS": f"127.0.0.{node + 2}",
        "VERLJOB_HEAD_PORTS": f"{first_port},{first_port + 1},{first_port + 2}",
        "VERLJOB_PORT_BLOCK": f"{block}-{block + 99}",
        "VERLJOB_IMAGE_DIGEST": "sha256:1",
        "VERLJOB_LEASE": str(own / "lease"),
        "VERLJOB_OUT": str(own),
        "VERLJOB_RAY_TEMP_DIR": str(own / "ray"),
        "VERLJOB_RECIPE": str(folder / "recipe.yaml"),
        "VERLJOB_RUN_DIR": str(folder / "run"),
        "VERLJOB_TOKEN_FILE": str(folder / "token"),
        "VERLJOB_VERL": str(folder / "verl"),
    }


@contextmanager
def running(folder: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Start both supervisors, and terminate them in the end."""
    first_port = free_port_block()
    leases = [os.open(folder / role / "lease", os.O_RDWR) for role in ROLES]
    processes = {}
    try:
        for node, role in enumerate(ROLES):
            with (folder / role / "output").open("wb") as output:
                processes[role] = subprocess.Popen(
                    [sys.executable, "-m", "verl_node"],
                    cwd=folder,
                    env=environment(folder, node, first_port),
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
        yield processes
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            process.wait()
        for lease in leases:
            os.close(lease)


def free_port_block(count: int = 300) -> int:
    """Return the first of ``count`` ports below the ephemeral range, of which the first is free."""
    for first in range(10000, 32000, count):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.2", first))
            except OSError:
                continue
        return first
    raise SystemExit("no free port below 32000")


def wait_for_training(folder: Path, processes: dict[str, subprocess.Popen[bytes]]) -> None:
    """Wait until the head has started the training; exit with both outputs if a supervisor has ended."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while STARTED not in (folder / "head/output").read_text():
        if time.monotonic() > deadline or any(process.poll() is not None for process in processes.values()):
            sys.exit(f"the training did not start:\n{outputs(folder)}")
        time.sleep(0.1)


def outputs(folder: Path) -> str:
    return "\n".join((folder / role / "output").read_text() for role in ROLES)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="s-") as name:  # short: sockets are in it
        folder = Path(name)
        lay_out(folder)
        with running(folder) as processes:
            wait_for_training(folder, processes)
            before = {role: cpu_s(process.pid) for role, process in processes.items()}
            time.sleep(options.seconds)
            if any(process.poll() is not None for process in processes.values()):
                sys.exit(f"the job has ended:\n{outputs(folder)}")
            for role, process in processes.items():
                percent = (cpu_s(process.pid) - before[role]) / options.seconds * 100
                print(f"{role}: {resident_mb(process.pid):.1f} MB resident, {percent:.2f} % of a core")


if __name__ == "__main__":
    main()
