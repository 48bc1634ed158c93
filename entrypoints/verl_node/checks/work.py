"""The deep tier: the GPUs at work, on request."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from verl_node import platforms
from verl_node.checks.answer import OK, Result
from verl_node.checks.check import check
from verl_node.settings import Settings

LIMIT_S = 85.0  # two of them are within the three minutes of a deep visit
_FIX = "Exclude the node, and have the GPU looked at: sbatch --exclude."


@check("slurm-container", limit_s=LIMIT_S, threshold=0.8, deep=True)
def gpus_compute_alike(settings: Settings, gpus: int, least: float) -> Result:
    """Every GPU multiplies matrices rightly, and none is much slower than the fastest of the node."""
    if not platforms.of(settings.platform).devices or gpus == 0:
        return OK
    told = _probe("compute")
    if isinstance(told, str):
        return Result("fail", told, _FIX, "a matrix product on each GPU")
    wrong = [number for number, right in enumerate(told["right"]) if not right]
    if wrong:
        return Result("fail", f"GPU {', '.join(map(str, wrong))} computed a wrong product.", _FIX, "the right one")
    fastest = max(told["tflops"], default=0.0)
    slow = [number for number, tflops in enumerate(told["tflops"]) if tflops < least * fastest]
    seen = f"TFLOP/s of each GPU: {', '.join(map(str, told['tflops']))}."
    return Result("fail", seen, _FIX, f"{least:g} of the fastest") if slow else Result("ok", seen)


@check("nccl", limit_s=LIMIT_S, deep=True)
def gpus_sum_together(settings: Settings, gpus: int) -> Result:
    """NCCL or RCCL sums a tensor over all GPUs of the node, rightly."""
    if not platforms.of(settings.platform).devices or gpus < 2:
        return OK
    told = _probe("reduce")
    if isinstance(told, str):
        return Result("fail", told, "Run it again with NCCL_DEBUG=INFO; shm, memlock and the driver are its needs.")
    seen = f"all-reduce of 256 MiB over {gpus} GPUs: {told['gbps']} GB/s on the bus."
    return Result("ok", seen) if told["right"] else Result("fail", f"The sum was wrong; {seen}", _FIX, "the right sum")


def _probe(word: str) -> dict[str, Any] | str:
    """Return what the probe found, or in words why it did not."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "verl_node.probe", word],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S - 5,
        )
    except subprocess.TimeoutExpired:
        return f"It took longer than {LIMIT_S - 5:.0f} s."
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines:
        found: dict[str, Any] = json.loads(lines[-1])
        return found
    said = [line for line in done.stderr.splitlines() if line.strip()] or ["it said nothing"]
    return f"It ended with {done.returncode}: {said[-1]}"
