"""Settings that break vLLM's rollout; on request a start of vLLM."""

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

LIMIT_S = 160.0  # of a deep visit's 180; most is imports, and NCCL's start over several GPUs
_MARGIN_S = 10.0
LOG = "vllm.log"
_ALLOCATORS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
_WANTED = "an engine that starts and generates"


@check("vllm")
def allocator_settings_fit(settings: Settings, gpus: int) -> Result:
    """No expandable_segments:True: vLLM's sleep mode, by which verl frees its memory, asserts that it is off."""
    for name in _ALLOCATORS:
        value = settings.environ.get(name, "")
        if "expandable_segments:true" in value.replace(" ", "").lower():
            return Result(
                "fail",
                f"{name}={value}: vLLM's memory pool for its sleep mode refuses it.",
                f"Take expandable_segments out of {name}; verl turns it on itself where it can.",
                "expandable_segments unset or False",
            )
    return OK


@check("vllm", limit_s=LIMIT_S, deep=True)
def engine_generates(settings: Settings, gpus: int) -> Result:
    """vLLM starts on the node's GPUs and generates, with a model of two layers; nothing where there is no vLLM."""
    if find_spec("vllm") is None:
        return IDLE
    with tempfile.TemporaryDirectory() as folder:
        told = _generation(gpus, Path(folder))
        if told is None:
            return Result("fail", *_why(Path(folder) / LOG), _WANTED)
    where = f"{told['gpus']} GPU{'s' * (told['gpus'] > 1)}" if gpus else "the CPU"
    seen = (
        f"vLLM {told['version']} started on {where} in {told['start_s']:g} s and "
        f"generated {told['tokens']} tokens in {told['generate_s']:g} s."
    )
    if told["tokens"] != TOKENS:
        return Result(
            "fail", seen, "Try another attention, VLLM_ATTENTION_BACKEND, or another image.", f"{TOKENS} tokens"
        )
    return Result("ok", seen)


def _generation(gpus: int, folder: Path) -> dict[str, Any] | None:
    """Return what the engine did, None where it did not; all that it said is in LOG, and none of it is left."""
    answer, limit_s = folder / "answer.json", LIMIT_S - _MARGIN_S
    with (folder / LOG).open("wb") as log:
        code = child.run(
            ["verl_node.checks.vllm_smoke", str(gpus), str(answer)],
            limit_s=limit_s,
            stdout=log,
            stderr=log,
            environ=_ENVIRONMENT,
            done=answer.exists,  # an engine takes its time to end
        )
        if code is None and not answer.exists():
            log.write(f"\nTimeoutError: vLLM neither started nor failed within {limit_s:.0f} s\n".encode())
    if not answer.exists():
        return None
    found: dict[str, Any] = json.loads(answer.read_bytes())
    return found


def _why(log: Path) -> tuple[str, str]:
    """Return what the log says of the failure, and the fix, as `invoke job.explain` would."""
    from verl_node.explain import explain  # only here: the supervisor's memory need not have the rules

    told = explain([log])
    return (
        f"vLLM did not generate: {told.line or told.cause}.",
        told.fix or "Run python3 -m verl_node.checks.vllm_smoke 1 FILE by hand.",
    )
