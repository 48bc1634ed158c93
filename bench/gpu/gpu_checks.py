"""Checks of a node on real GPUs: figures of the deep checks, and whether planted faults are found.

    python3 bench/gpu/gpu_checks.py

Run it with a Python that has torch, on an otherwise unused machine with NVIDIA GPUs; it takes about three minutes. The
checks are those of a node (verl_node/checks), without Slurm and Ray. Prints the figures beside their physical limits, a
line for each fault, and how many were found. Exits with 1 if a fault was missed or a check of sound GPUs failed.
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

# Dense bfloat16 and one direction of NVLink. NVIDIA's data sheets of the H100 SXM and the H200 have twice as much: with
# sparsity, and 900 GB/s for both directions.
PEAK_TFLOPS, PEAK_GBPS = 989.0, 450.0
# Prefixes of the checks of GPUs and NCCL; the others check the machine.
CHECKS = ("gpus.", "devices.", "gpu_work.", "nccl.interfaces_that_are_named_exist")
FINE = ("ok", "idle")
HELD_GIB = 20
HOLDER = """import sys, torch
held = torch.empty({gib} << 30, dtype=torch.uint8, device="cuda")
print("held", flush=True)
sys.stdin.read()"""


def print_outcomes(gpus: int) -> None:
    """Run the checks as a node with ``gpus`` GPUs in this environment, and print the outcomes as JSON."""
    settings = Settings.from_env(os.environ)
    selected = [check for check in checks.CHECKS if check.name.startswith(CHECKS)]
    run = Run.begin(selected, settings, gpus)
    print(json.dumps([asdict(outcome) for outcome in asyncio.run(run.outcomes())]))


def run_checks(gpus: int, wrapper: Sequence[str] = (), **changes: str) -> list[Outcome]:
    """Run the checks of a node with ``gpus`` GPUs in a process below ``wrapper``. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*wrapper, sys.executable, __file__, "--node", str(gpus)],
            env={**os.environ, **environment(Path(folder), gpus), **changes},
            stdout=subprocess.PIPE,
            check=True,
        )
    return [Outcome(**outcome) for outcome in json.loads(done.stdout.splitlines()[-1])]


def environment(folder: Path, gpus: int) -> dict[str, str]:
    """Return the environment that launch.sh and node.sh give to the only node of a job."""
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


def check_sound(gpus: int) -> bool:
    """Check sound GPUs, and print their figures; return whether all checks passed."""
    mask = ",".join(map(str, range(gpus)))
    began = time.monotonic()
    outcomes = run_checks(gpus, CUDA_VISIBLE_DEVICES=mask)
    print(f"{gpus} GPUs, deep tier: {time.monotonic() - began:.1f} s")
    for outcome in outcomes:
        if outcome.severity not in FINE or outcome.check.startswith("gpu_work."):
            print(f"  {outcome.severity} {outcome.sentence()} ({outcome.seconds:.1f} s)")
    return all(outcome.severity in FINE for outcome in outcomes)


def is_found(fault: str, check: str, outcomes: Sequence[Outcome]) -> bool:
    """Print the failed checks for a planted ``fault``; return whether ``check`` is one of them."""
    failed = [outcome for outcome in outcomes if outcome.bad]
    hit = any(outcome.check == check for outcome in failed)
    print(f"{fault}: {'found' if hit else 'NOT FOUND'}", flush=True)
    for outcome in failed:
        print(f"  {outcome.sentence()} — {outcome.fix} ({outcome.seconds:.1f} s)")
    return hit


def check_with_used_memory(gpus: int) -> list[Outcome]:
    """Run the checks while another process holds memory of the first GPU."""
    argv = [sys.executable, "-c", HOLDER.format(gib=HELD_GIB)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdout.readline()
        outcomes = run_checks(gpus, VERLJOB_DOCTOR="")
        holder.stdin.close()
    return outcomes


def check_with_masked_device(gpus: int) -> list[Outcome]:
    """Run the checks in a mount namespace that masks the last GPU's device, as a container runtime does."""
    hide = f"mount --bind /dev/null /dev/nvidia{gpus - 1}"
    return run_checks(gpus, ["unshare", "--mount", "sh", "-c", f'{hide} && exec "$@"', "sh"], VERLJOB_DOCTOR="")


def main() -> int:
    if sys.argv[1:2] == ["--node"]:
        print_outcomes(int(sys.argv[2]))
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    gpus = len(listed.splitlines())
    print(
        listed.splitlines()[0].partition(" (UUID")[0],
        f"and {gpus - 1} more; peak {PEAK_TFLOPS:g} TFLOP/s, {PEAK_GBPS:g} GB/s",
    )
    sound = [check_sound(count) for count in (1, 2, 4, 8) if count <= gpus]
    faults = [
        is_found("a GPU is masked", "devices.gpus_are_visible", check_with_masked_device(gpus)),
        is_found(f"another process holds {HELD_GIB} GiB", "gpus.memory_is_free", check_with_used_memory(gpus)),
        is_found(
            "NCCL_SOCKET_IFNAME names an unknown interface",
            "nccl.interfaces_that_are_named_exist",
            run_checks(gpus, NCCL_SOCKET_IFNAME="=ib7"),
        ),
    ]
    print(f"{sum(faults)} of {len(faults)} planted faults found, {sound.count(False)} false alarms")
    return 0 if all([*sound, *faults]) else 1


if __name__ == "__main__":
    sys.exit(main())
