"""What vLLM's rollout does not survive, and on request whether vLLM itself starts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from verl_node import tree
from verl_node.checks.answer import IDLE, OK, Result
from verl_node.checks.check import check
from verl_node.generation import TOKENS
from verl_node.settings import Settings

LIMIT_S = 160.0  # of a deep visit's 180; most is imports, and NCCL's start over several GPUs
_MARGIN_S = 10.0
_LOOK_S = 0.1
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
    seen = (
        f"vLLM {told['version']} started on {told['gpus']} GPU{'s' * (told['gpus'] > 1)} in {told['start_s']:g} s and "
        f"generated {told['tokens']} tokens in {told['generate_s']:g} s."
    )
    if told["tokens"] != TOKENS:
        return Result(
            "fail", seen, "Try another attention, VLLM_ATTENTION_BACKEND, or another image.", f"{TOKENS} tokens"
        )
    return Result("ok", seen)


def _generation(gpus: int, folder: Path) -> dict[str, Any] | None:
    """Return what the engine did, None where it did not; all that it said is in LOG, and none of it is left."""
    answer, deadline = folder / "answer.json", time.monotonic() + LIMIT_S - _MARGIN_S
    with (
        (folder / LOG).open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-m", "verl_node.generation", str(gpus), str(answer)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **_ENVIRONMENT},
        ) as process,
    ):
        while process.poll() is None and not answer.exists() and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        if process.poll() is None and not answer.exists():
            log.write(f"\nTimeoutError: vLLM neither started nor failed within {LIMIT_S - _MARGIN_S:.0f} s\n".encode())
        _end(process)
    if not answer.exists():
        return None
    found: dict[str, Any] = json.loads(answer.read_bytes())
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what the engine started, then itself: its workers would outlive it and keep the GPUs' memory."""
    while pids := [*tree.below(process.pid), *([process.pid] if process.poll() is None else [])]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_S)  # again: one may have been started between the look and the signal


def _why(log: Path) -> tuple[str, str]:
    """Return what the log says of the failure, and the fix, as `invoke explain` would."""
    from verl_node.explain import explain  # only here: the supervisor's memory need not have the rules

    told = explain([log])
    return (
        f"vLLM did not generate: {told.line or told.cause}.",
        told.fix or "Run python3 -m verl_node.generation 1 FILE by hand.",
    )
