"""Settings that break vLLM's rollout; on request a test run of vLLM."""

from __future__ import annotations

import json
import re
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from verl_node.checks import child
from verl_node.checks.check import check
from verl_node.checks.result import IDLE, OK, Result
from verl_node.checks.vllm_smoke import TOKENS
from verl_node.settings.identity import installed
from verl_node.settings.settings import Settings

LIMIT_S = 160.0  # of a deep run's 180; most of it is imports, and the start of NCCL over several GPUs
_MARGIN_S = 10.0
LOG = "vllm.log"
# vllm/device_allocator/cumem.py reads this variable alone: until 0.20.0 it asserts, later it turns the setting off for
# its pool (PyPI's wheels of 0.8.5 to 0.32.0).
_ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
_TURNS_IT_OFF = (0, 20, 1)
_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
_EXPECTED = "an engine that starts and generates"


@check("vllm")
def allocator_settings_fit(settings: Settings, gpus: int) -> Result:
    """expandable_segments is not True for a vLLM before 0.20.1, whose sleep mode asserts that it is off."""
    value, version = settings.environ.get(_ALLOCATOR, ""), installed("vllm")
    if "expandable_segments:True" in value and version and _numbers(version) < _TURNS_IT_OFF:
        return Result(
            "fail",
            f"{_ALLOCATOR}={value}: the memory pool of vLLM {version} for its sleep mode does not support it.",
            f"Remove expandable_segments from {_ALLOCATOR}; verl turns it on itself if it can.",
            "expandable_segments unset or False, or vLLM 0.20.1 or later",
        )
    return OK


@check("vllm", limit_s=LIMIT_S, deep=True)
def engine_generates(settings: Settings, gpus: int) -> Result:
    """vLLM starts on the node's GPUs and generates, with a model of two layers."""
    if find_spec("vllm") is None:
        return IDLE
    with tempfile.TemporaryDirectory() as folder:
        answer = _run_smoke_test(gpus, Path(folder))
        if answer is None:
            return Result("fail", *_failure(Path(folder) / LOG), _EXPECTED)
    where = f"{answer['gpus']} GPU{'s' * (answer['gpus'] > 1)}" if gpus else "the CPU"
    seen = (
        f"vLLM {answer['version']} started on {where} in {answer['start_s']:g} s and "
        f"generated {answer['tokens']} tokens in {answer['generate_s']:g} s."
    )
    if answer["tokens"] != TOKENS:
        return Result("fail", seen, "Try another VLLM_ATTENTION_BACKEND, or another image.", f"{TOKENS} tokens")
    return Result("ok", seen)


def _run_smoke_test(gpus: int, folder: Path) -> dict[str, Any] | None:
    """Return the answer of vllm_smoke, None if it failed; its output is in LOG."""
    file, limit_s = folder / "answer.json", LIMIT_S - _MARGIN_S
    with (folder / LOG).open("wb") as log:
        code = child.run(
            ["verl_node.checks.vllm_smoke", str(gpus), str(file)],
            limit_s=limit_s,
            stdout=log,
            stderr=log,
            environ=_ENVIRONMENT,
            done=file.exists,  # the engine ends slowly
        )
        if code is None and not file.exists():
            log.write(f"\nTimeoutError: vLLM neither started nor failed within {limit_s:.0f} s\n".encode())
    if not file.exists():
        return None
    answer: dict[str, Any] = json.loads(file.read_bytes())
    return answer


def _failure(log: Path) -> tuple[str, str]:
    """Return cause and fix of the failure in a log, as `invoke job.explain` would."""
    from verl_node.explain import explain  # late: the rules cost memory

    explanation = explain([log])
    return (
        f"vLLM did not generate: {explanation.line or explanation.cause}.",
        explanation.fix or "Run python3 -m verl_node.checks.vllm_smoke 1 FILE manually.",
    )


def _numbers(version: str) -> tuple[int, ...]:
    """Return (0, 20, 2) of ``0.20.2rc1+rocm700``."""
    return tuple(map(int, re.findall(r"\d+", version)[:3]))
