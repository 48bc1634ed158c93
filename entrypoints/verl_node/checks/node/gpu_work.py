"""Deep checks on request: imports of a training, the number of GPUs, computation and collectives on them."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from verl_node.checks import child
from verl_node.checks.check import check
from verl_node.checks.node import gpus as gpu_checks
from verl_node.checks.result import IDLE, Result
from verl_node.gpu import status, visible_devices
from verl_node.settings.settings import Settings

IMPORT_LIMIT_S = 150.0  # torch, vLLM and SGLang, on a file system that may be cold; a deep run has 180
LIMIT_S = 85.0  # two of them fit into the three minutes of a deep run
_OF_PEAK = 0.6  # a product of this size reaches 0.87 to 0.90 of the peak on an H200 (docs/benchmarks.md)
_FIX = "Exclude the node (sbatch --exclude), and have the GPU examined."
# Dense bfloat16, TFLOP/s: NVIDIA's data sheets of the H200, H100 and A100 (half of the figure "with sparsity"), of the
# HGX B200 (36 PFLOP/s for eight with sparsity); AMD's of the MI325X, MI300X and MI250X (of one of its two dies).
_PEAK_TFLOPS = {
    "B200": 2250.0,
    "H200": 989.0,
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H100": 989.0,
    "A100": 312.0,
    "MI325X": 1307.0,
    "MI300X": 1307.0,
    "MI250X": 191.5,
}
# GB/s of one NVLink in one direction: 900 GB/s in both for the 18 of an H100 or H200, 1800 for the 18 of a B200.
_LINK_GBPS, _LINK_GBPS_BLACKWELL = 25.0, 50.0


@check("image", limit_s=IMPORT_LIMIT_S, deep=True)
def training_can_be_imported(settings: Settings, gpus: int) -> Result:
    """verl's worker and the rollouts of the image's engines can be imported; on ROCm vLLM has a sleep mode."""
    if find_spec("verl") is None:
        return IDLE
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as output:
        file = Path(folder) / "answer.json"
        argv = ["verl_node.checks.import_smoke", settings.platform, str(file)]
        code = child.run(argv, limit_s=IMPORT_LIMIT_S - 5, stdout=output, stderr=output, done=file.exists)
        if not file.exists():
            last = (_lines(output) or ["no error message"])[-1]
            seen = "It took too long." if code is None else f"It exited with {code}: {last}"
            return Result("fail", seen, "Import the modules manually in a container of this image.")
        answer: dict[str, Any] = json.loads(file.read_bytes())
    failed, expected = answer["failed"], "verl's worker and a rollout that can be imported"
    if failed:
        engines = {name.split(".")[3].partition("_")[0] for name in answer["imported"] if ".rollout." in name}
        works = "verl" not in failed and engines - set(failed)
        fix = "Use another image (docs/tags.md), or install what is missing in your own Dockerfile."
        return Result("warn" if works else "fail", f"{'; '.join(failed.values())}.", fix, expected)
    facts = {name: answer[name] for name in ("sleep_mode", "vllm_mode") if answer[name] not in (None, "")}
    seen = "".join(f"; {name} is {value}" for name, value in facts.items())
    return Result("ok", f"Imported: {', '.join(answer['imported'])}{seen}.")


@check("image", limit_s=LIMIT_S, deep=True)
def gpus_are_counted_alike(settings: Settings, gpus: int) -> Result:
    """Ray counts as many GPUs as torch sees and the driver lists."""
    if not gpu_checks.job_has_gpus(settings, gpus):
        return IDLE
    try:
        driver = len(gpu_checks.job_gpus(settings, gpus))
    except status.NoAnswer:
        return IDLE  # driver_answers reports it
    argvs = {who: ["verl_node.gpu.count", who, settings.platform, str(gpus)] for who in ("ray", "torch")}
    counts = {who: _run_json(argv, (LIMIT_S - 5) / 2) for who, argv in argvs.items()}
    for who, count in counts.items():
        if isinstance(count, str):
            fix = f"Run python3 -m {' '.join(argvs[who])} manually in a container of this image."
            return Result("fail", f"{who} could not count the GPUs. {count}", fix, f"{driver}, as the driver lists")
    seen = f"The driver lists {driver} GPUs, Ray counts {counts['ray']}, torch sees {counts['torch']}."
    if counts["ray"] == counts["torch"] == driver:
        return Result("ok", seen)
    return Result("fail", seen, _count_fix(settings.platform, counts, driver), "the same number three times")


def _count_fix(platform: str, counts: dict[str, Any], driver: int) -> str:
    if platform == "rocm" and counts["ray"] == 0 and find_spec("amdsmi") is None:
        return (
            "Ray counts AMD's GPUs with the Python package amdsmi, which this image does not have: install it from "
            "share/amd_smi of its ROCm (`repairs` of the catalog's rocm10 does), or use an image that has it."
        )
    if platform == "rocm" and counts["torch"] == 0 and driver:
        return (
            "A second libamd_smi, loaded with RTLD_GLOBAL, hides the GPUs from torch (ROCm/rocm-systems#7643): set "
            "rtld_global to False in rocm_sdk/__init__.py, as `repairs` of the catalog's rocm10 does."
        )
    return f"Compare {', '.join(visible_devices.MASKS)} in the job and in the image, and the devices of the container."


@check("slurm-container", limit_s=LIMIT_S, threshold=0.8, deep=True)
def gpus_compute_alike(settings: Settings, gpus: int, least: float) -> Result:
    """Every GPU multiplies matrices correctly, near the speed of the fastest one and of its model."""
    if not gpu_checks.job_has_gpus(settings, gpus):
        return IDLE
    figures = _benchmark("compute")
    if isinstance(figures, str):
        return Result("fail", figures, _FIX, "a matrix product on each GPU")
    wrong = [number for number, right in enumerate(figures["right"]) if not right]
    if wrong:
        seen = f"GPU {', '.join(map(str, wrong))} computed a wrong product."
        return Result("fail", seen, _FIX, "the correct product")
    fastest = max(figures["tflops"], default=0.0)
    slow = [number for number, tflops in enumerate(figures["tflops"]) if tflops < least * fastest]
    peak = peak_tflops(_gpu_model(settings, gpus))
    seen = f"TFLOP/s of each GPU: {', '.join(map(str, figures['tflops']))}{f', at most {peak:g}' if peak else ''}."
    if peak and fastest < _OF_PEAK * peak:
        return Result("fail", seen, _FIX, f"{_OF_PEAK:g} of this model's peak")
    return Result("fail", seen, _FIX, f"{least:g} of the fastest") if slow else Result("ok", seen)


@check("nccl", limit_s=LIMIT_S, threshold=0.4, deep=True)
def gpus_sum_together(settings: Settings, gpus: int, least: float) -> Result:
    """NCCL or RCCL sums a tensor over all GPUs correctly, at the speed of their NVLink."""
    if not gpu_checks.job_has_gpus(settings, gpus) or gpus < 2:
        return IDLE
    figures = _benchmark("reduce")
    if isinstance(figures, str):
        return Result("fail", figures, "Run it again with NCCL_DEBUG=INFO; it needs shm, memlock and the driver.")
    link = _link_gbps(settings, gpus)
    limit = f", NVLink has {link:g}" if link else ""
    seen = f"all-reduce of 256 MiB over {gpus} GPUs: {figures['gbps']} GB/s on the bus{limit}."
    if not figures["right"]:
        return Result("fail", f"The sum was wrong; {seen}", _FIX, "the correct sum")
    if link and figures["gbps"] < least * link:
        fix = "Check `nvidia-smi nvlink --status`, the fabric manager and NCCL_P2P_DISABLE; exclude the node."
        return Result("fail", seen, fix, f"{least:g} of the link")
    return Result("ok", seen)


def _gpu_model(settings: Settings, gpus: int) -> str:
    """Return the model of the job's first GPU, empty if the driver does not answer."""
    try:
        return next((gpu.model for gpu in gpu_checks.job_gpus(settings, gpus)), "")
    except status.NoAnswer:
        return ""


def _link_gbps(settings: Settings, gpus: int) -> float | None:
    if settings.platform != "cuda":
        return None
    try:
        return nvlink_gbps(status.run_tool(status.TOPOLOGY, gpu_checks.TIMEOUT_S), _gpu_model(settings, gpus))
    except status.NoAnswer:
        return None


def peak_tflops(model: str) -> float | None:
    """Return the peak rate of a GPU model; None for an unknown one."""
    return next((peak for name, peak in _PEAK_TFLOPS.items() if name in model), None)


def nvlink_gbps(topology: str, model: str) -> float | None:
    """Return the bandwidth of the slowest pair in `nvidia-smi topo -m`; None without NVLink."""
    rows = [line.split() for line in re.sub(r"\x1b\[\d*m", "", topology).splitlines()]
    gpus = [row[1:] for row in rows if row and re.fullmatch(r"GPU\d+", row[0]) and "X" in row]
    pairs = [link for row in gpus for link in row[: len(gpus)] if link != "X"]
    links = [int(link[2:]) for link in pairs if re.fullmatch(r"NV\d+", link)]
    if not pairs or len(links) < len(pairs):
        return None
    return min(links) * (_LINK_GBPS_BLACKWELL if "B200" in model else _LINK_GBPS)


def _benchmark(operation: str) -> dict[str, Any] | str:
    """Return the figures of verl_node.gpu.benchmark, or the reason for its failure."""
    figures: dict[str, Any] | str = _run_json(["verl_node.gpu.benchmark", operation], LIMIT_S - 5)
    return figures


def _run_json(module_argv: Sequence[str], limit_s: float) -> Any:
    """Return the JSON that a module prints last, or the reason for its failure, a text."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        code = child.run(module_argv, limit_s=limit_s, stdout=stdout, stderr=stderr)
        output, errors = (_lines(file) for file in (stdout, stderr))
    if code is None:
        return f"It took longer than {limit_s:.0f} s."
    if code == 0 and output:
        return json.loads(output[-1])
    return f"It exited with {code}: {errors[-1] if errors else 'no error message'}"


def _lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    return [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
