"""`python3 -m verl_node.checks.import_smoke PLATFORM FILE`: imports what a training imports, on the node's GPUs.

The guard of an image's build (dockerfiles/training_import.py) imports the same on a machine without a GPU, where vLLM
does not choose its platform. A separate process, since these imports take memory, and may hang.
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path

from verl_node.reporting.verdict import write_by_rename

# verl chooses the first of these that a release has: verl/trainer/main_ppo.py of 0.4 to 0.7, and from 0.8 on.
WORKERS = ("verl.workers.fsdp_workers", "verl.workers.engine_workers")
ROLLOUTS = {
    "vllm": "verl.workers.rollout.vllm_rollout",
    "sglang": "verl.workers.rollout.sglang_rollout.sglang_rollout",
}
CUSTOMIZED = "customized"  # verl 0.4's vllm_mode for vLLM 0.6.3, which does not put vLLM to sleep


@dataclass
class Answer:
    """Imported modules, failures by engine (verl's own under ``verl``), and how verl would use vLLM on ROCm."""

    imported: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    sleep_mode: bool | None = None
    vllm_mode: str = ""


def main() -> int:
    """Write FILE, one JSON object."""
    platform, file = sys.argv[1], Path(sys.argv[2])
    write_by_rename(file, json.dumps(asdict(import_all(platform))))
    return 0


def import_all(platform: str) -> Answer:
    """Import verl's worker and the rollout of each engine that the image has."""
    answer = Answer()
    if not _import(answer, "verl", "verl"):  # also imports VERL_USE_EXTERNAL_MODULES, as in a worker
        return answer
    worker = next((name for name in WORKERS if find_spec(name)), WORKERS[-1])
    _import(answer, "verl", worker)
    for engine, module in ROLLOUTS.items():
        if find_spec(engine) and _import(answer, engine, module) and (engine, platform) == ("vllm", "rocm"):
            _ask_vllm(answer)
    return answer


def _import(answer: Answer, part: str, module: str) -> bool:
    try:
        importlib.import_module(module)
    except BaseException as error:  # an import may raise anything, also SystemExit
        answer.failed[part] = f"import {module}: {type(error).__name__}: {' '.join(str(error).split())}"
        return False
    answer.imported.append(module)
    return True


def _ask_vllm(answer: Answer) -> None:
    """Report an engine without sleep mode as failed: verl would start it with that mode."""
    platform = importlib.import_module("vllm.platforms").current_platform
    available = getattr(platform, "is_sleep_mode_available", None)
    answer.sleep_mode = bool(available and available())
    answer.vllm_mode = str(getattr(importlib.import_module(ROLLOUTS["vllm"]), "vllm_mode", ""))
    if not answer.sleep_mode and answer.vllm_mode != CUSTOMIZED:
        answer.failed["vllm"] = "vLLM has no sleep mode on this GPU, with which verl starts it"


if __name__ == "__main__":
    sys.exit(main())
