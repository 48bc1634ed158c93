"""Checks of a node on real GPUs: figures of the deep checks, and whether planted faults are found.

    python3 bench/gpu/gpu_checks.py

Run it by a Python with torch, on a machine with NVIDIA GPUs that nobody else uses; about three minutes. The checks are
the node's own (verl_node/checks), without Slurm and Ray. Prints the figures beside their physical limits, a line for
each fault, and last how many were found; ends with 1 where one was not, or where a sound GPU was complained of.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "entrypoints"))

from verl_node import checks
from verl_node.checks.result import Outcome
from verl_node.checks.runner import Run
from verl_node.settings.settings import Settings

# Dense bfloat16 and NVLink to one side: NVIDIA's data sheets of the H100 SXM and the H200, "989 teraFLOPS" (half of
# what they say with sparsity) and "900 GB/s", which counts both directions.
PEAK_TFLOPS, PEAK_GBPS = 989.0, 450.0
# What is about the GPUs and NCCL; the others are about the machine that this happens to run on.
ABOUT = ("gpus.", "devices.", "work.", "nccl.interfaces_that_are_named_exist")
FINE = ("ok", "idle")
HELD_GIB = 20
HOLDER = """import sys, torch
held = torch.empty({gib} << 30, dtype=torch.uint8, device="cuda")
print("held", flush=True)
sys.stdin.read()"""


def one(gpus: int) -> None:
    """Be a node with ``gpus`` GPUs in this environment: print the outcomes as JSON."""
    settings = Settings.from_env(os.environ)
    chosen = [check for check in checks.CHECKS if check.name.startswith(ABOUT)]
    run = Run.begin(chosen, settings, gpus)
    print(json.dumps([asdict(outcome) for outcome in asyncio.run(run.outcomes())]))


def node(gpus: int, inside: Sequence[str] = (), **changes: str) -> list[Outcome]:
    """Run the checks of a node with ``gpus`` GPUs; raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*inside, sys.executable, __file__, "--one", str(gpus)],
            env={**os.environ, **environment(Path(folder), gpus), **changes},
            stdout=subprocess.PIPE,
            check=True,
        )
    return [Outcome(**outcome) for outcome in json.loads(done.stdout.splitlines()[-1])]


def environment(folder: Path, gpus: int) -> dict[str, str]:
    """Return what launch.sh and node.sh would give to the only node of a job."""
    (folder / "token").write_text("0123456789abcdef")
    return {
        "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "entrypoints"),
        "HOME": str(folder),
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n0",
        "SLURM_NNODES": "1",
        "SLURM_NODEID": "0",
        "SLURMD_NODENAME": "n0",
        "SLURM_CPUS_PER_TASK": "8",
        "SLURM_GPUS_ON_NODE": str(gpus),
        "VERLJOB_DOCTOR": "deep",
        "VERLJOB_HEAD_PORTS": "20000,20001,20002",
        "VERLJOB_OUT": str(folder),
        "VERLJOB_PLATFORM": "cuda",
        "VERLJOB_PORT_BLOCK": "20100-20199",
        "VERLJOB_RAY_TEMP_DIR": str(folder / "ray"),
        "VERLJOB_RUN_DIR": str(folder),
        "VERLJOB_TOKEN_FILE": str(folder / "token"),
    }


def sound(gpus: int) -> bool:
    """Check GPUs that nothing is wrong with, and print what they did; return whether none was complained of."""
    mask = ",".join(map(str, range(gpus)))
    began = time.monotonic()
    outcomes = node(gpus, CUDA_VISIBLE_DEVICES=mask)
    print(f"{gpus} GPUs, deep tier: {time.monotonic() - began:.1f} s")
    for outcome in outcomes:
        if outcome.severity not in FINE or outcome.check.startswith("work."):
            print(f"  {outcome.severity} {outcome.sentence()} ({outcome.seconds:.1f} s)")
    return all(outcome.severity in FINE for outcome in outcomes)


def found(fault: str, check: str, outcomes: Sequence[Outcome]) -> bool:
    """Print what the checks said to a planted ``fault``; return whether ``check`` failed."""
    complaints = [outcome for outcome in outcomes if outcome.bad]
    hit = any(outcome.check == check for outcome in complaints)
    print(f"{fault}: {'found' if hit else 'NOT FOUND'}", flush=True)
    for outcome in complaints:
        print(f"  {outcome.sentence()} — {outcome.fix} ({outcome.seconds:.1f} s)")
    return hit


def held(gpus: int) -> list[Outcome]:
    """Check while another process holds memory of the first GPU."""
    words = [sys.executable, "-c", HOLDER.format(gib=HELD_GIB)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdout.readline()
        outcomes = node(gpus, VERLJOB_DOCTOR="")
        holder.stdin.close()
    return outcomes


def closed(gpus: int) -> list[Outcome]:
    """Check where the last GPU's device is masked, as a container runtime does it, for this process alone."""
    hide = f"mount --bind /dev/null /dev/nvidia{gpus - 1}"
    return node(gpus, ["unshare", "--mount", "sh", "-c", f'{hide} && exec "$@"', "sh"], VERLJOB_DOCTOR="")


def main() -> int:
    if sys.argv[1:2] == ["--one"]:
        one(int(sys.argv[2]))
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    gpus = len(listed.splitlines())
    print(
        listed.splitlines()[0].partition(" (UUID")[0],
        f"and {gpus - 1} more; peak {PEAK_TFLOPS:g} TFLOP/s, {PEAK_GBPS:g} GB/s",
    )
    well = [sound(count) for count in (1, 2, 4, 8) if count <= gpus]
    faults = [
        found("a GPU is closed to the job", "devices.gpus_are_visible", closed(gpus)),
        found(f"another process holds {HELD_GIB} GiB", "gpus.memory_is_free", held(gpus)),
        found(
            "NCCL is told of an interface that is not there",
            "nccl.interfaces_that_are_named_exist",
            node(gpus, NCCL_SOCKET_IFNAME="=ib7"),
        ),
    ]
    print(f"{sum(faults)} of {len(faults)} planted faults found, {well.count(False)} false alarms")
    return 0 if all([*well, *faults]) else 1


if __name__ == "__main__":
    sys.exit(main())
