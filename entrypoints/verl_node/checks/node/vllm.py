"""Settings that break vLLM's rollout; on request a test run of vLLM."""

from __future__ import annotations

import json
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from verl_node.checks import child
from verl_node.checks.check import check
from verl_node.checks.result import IDLE, OK, Result
from verl_node.checks.vllm_smoke import TOKENS
from verl_node.settings.settings import Settings

LIMIT_S = 160.0  # of a deep run's 180; most of it is imports, and the start of NCCL over several GPUs
_MARGIN_S = 10.0
LOG = "vllm.log"
_ALLOCATORS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
_EXPECTED = "an engine that starts and generates"


@check("vllm")
def allocator_settings_fit(settings: Settings, gpus: int) -> Result:
    """expandable_segments is not True: vLLM's sleep mode asserts that it is off."""
    for name in _ALLOCATORS:
        value = settings.environ.get(name, "")
        if "expandable_segments:true" in value.replace(" ", "").lower():
            return Result(
                "fail",
                f"{name}={value}: vLLM's memory pool for its sleep mode does not support it.",
                f"Remove expandable_segments from {name}; verl turns it on itself if it can.",
                "expandable_segments unset or False",
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
