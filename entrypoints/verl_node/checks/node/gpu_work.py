"""Deep checks: computation and collectives on the GPUs, on request."""

from __future__ import annotations

import json
import tempfile
from typing import IO, Any

from verl_node.checks import child
from verl_node.checks.check import check
from verl_node.checks.node import gpus as job_gpus
from verl_node.checks.node import peaks
from verl_node.checks.result import IDLE, Result
from verl_node.gpu import platforms, status
from verl_node.settings.settings import Settings

LIMIT_S = 85.0  # two of them are within the three minutes of a deep visit
_OF_PEAK = 0.6  # a product of this size reaches 0.87 to 0.90 of it on an H200 (docs/benchmarks.md)
_FIX = "Exclude the node, and have the GPU looked at: sbatch --exclude."


@check("slurm-container", limit_s=LIMIT_S, threshold=0.8, deep=True)
def gpus_compute_alike(settings: Settings, gpus: int, least: float) -> Result:
    """Every GPU multiplies matrices rightly, and none is much slower than the fastest of the node, or than its kind."""
    if not platforms.find(settings.platform).devices or gpus == 0:
        return IDLE
    told = _probe("compute")
    if isinstance(told, str):
        return Result("fail", told, _FIX, "a matrix product on each GPU")
    wrong = [number for number, right in enumerate(told["right"]) if not right]
    if wrong:
        return Result("fail", f"GPU {', '.join(map(str, wrong))} computed a wrong product.", _FIX, "the right one")
    fastest = max(told["tflops"], default=0.0)
    slow = [number for number, tflops in enumerate(told["tflops"]) if tflops < least * fastest]
    peak = peaks.tflops(_model(settings, gpus))
    seen = f"TFLOP/s of each GPU: {', '.join(map(str, told['tflops']))}{f', at most {peak:g}' if peak else ''}."
    if peak and fastest < _OF_PEAK * peak:
        return Result("fail", seen, _FIX, f"{_OF_PEAK:g} of what such a GPU can do")
    return Result("fail", seen, _FIX, f"{least:g} of the fastest") if slow else Result("ok", seen)


@check("nccl", limit_s=LIMIT_S, threshold=0.4, deep=True)
def gpus_sum_together(settings: Settings, gpus: int, least: float) -> Result:
    """NCCL or RCCL sums a tensor over all GPUs of the node, rightly, and as fast as their NVLink lets it."""
    if not platforms.find(settings.platform).devices or gpus < 2:
        return IDLE
    told = _probe("reduce")
    if isinstance(told, str):
        return Result("fail", told, "Run it again with NCCL_DEBUG=INFO; shm, memlock and the driver are its needs.")
    link = _link(settings, gpus)
    limit = f", NVLink has {link:g}" if link else ""
    seen = f"all-reduce of 256 MiB over {gpus} GPUs: {told['gbps']} GB/s on the bus{limit}."
    if not told["right"]:
        return Result("fail", f"The sum was wrong; {seen}", _FIX, "the right sum")
    if link and told["gbps"] < least * link:
        fix = "Look at `nvidia-smi nvlink --status`, the fabric manager and NCCL_P2P_DISABLE; exclude the node."
        return Result("fail", seen, fix, f"{least:g} of the link")
    return Result("ok", seen)


def _model(settings: Settings, gpus: int) -> str:
    """Return the name of the job's first GPU, empty where the driver does not answer: another check says that."""
    try:
        return next((gpu.model for gpu in job_gpus.look(settings, gpus)), "")
    except status.NoAnswer:
        return ""


def _link(settings: Settings, gpus: int) -> float | None:
    if settings.platform != "cuda":
        return None
    try:
        return peaks.nvlink_gbps(status.ask(status.TOPOLOGY, job_gpus.TIMEOUT_S), _model(settings, gpus))
    except status.NoAnswer:
        return None


def _probe(word: str) -> dict[str, Any] | str:
    """Return what the probe found, or in words why it did not."""
    limit_s = LIMIT_S - 5
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        code = child.run(["verl_node.gpu.benchmark", word], limit_s=limit_s, stdout=stdout, stderr=stderr)
        told, said = (_lines(file) for file in (stdout, stderr))
    if code is None:
        return f"It took longer than {limit_s:.0f} s."
    if code == 0 and told:
        found: dict[str, Any] = json.loads(told[-1])
        return found
    return f"It ended with {code}: {said[-1] if said else 'it said nothing'}"


def _lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    return [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
