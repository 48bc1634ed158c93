"""Imports of a training, with fakes of verl, vLLM and SGLang."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ENTRYPOINTS

PLATFORM = """
class Platform:
    def is_sleep_mode_available(self): return {}
current_platform = Platform()
"""


def import_all(folder: Path, platform: str, files: dict[str, str]) -> dict[str, Any]:
    for name, source in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        for parent in path.relative_to(folder).parents:
            if str(parent) != ".":
                (folder / parent / "__init__.py").touch()
        path.write_text(source)
    argv = [sys.executable, "-m", "verl_node.checks.import_smoke", platform, str(folder / "answer")]
    subprocess.run(argv, env={"PYTHONPATH": f"{ENTRYPOINTS}:{folder}"}, check=True)
    answer: dict[str, Any] = json.loads((folder / "answer").read_text())
    return answer


VLLM_ROLLOUT = "verl/workers/rollout/vllm_rollout/__init__"


def test_release_with_both_workers_uses_the_older_one(tmp_path: Path) -> None:
    workers = {"verl/workers/fsdp_workers": "", "verl/workers/engine_workers": "import gone"}

    answer = import_all(tmp_path, "cuda", {**workers, VLLM_ROLLOUT: "", "vllm/platforms": "import gone"})

    rollout = "verl.workers.rollout.vllm_rollout"
    assert answer["imported"] == ["verl", "verl.workers.fsdp_workers", rollout]
    assert (answer["failed"], answer["sleep_mode"]) == ({}, None)


def test_failures_are_reported_by_engine(tmp_path: Path) -> None:
    sglang = {
        "sglang/__init__": "",
        "verl/workers/rollout/sglang_rollout/sglang_rollout": "raise RuntimeError('no GPU')",
    }

    answer = import_all(tmp_path, "cuda", {"verl/workers/engine_workers": "import flash_attn", **sglang})

    assert answer["failed"] == {
        "verl": "import verl.workers.engine_workers: ModuleNotFoundError: No module named 'flash_attn'",
        "sglang": "import verl.workers.rollout.sglang_rollout.sglang_rollout: RuntimeError: no GPU",
    }


@pytest.mark.parametrize(
    ("available", "mode", "failed"),
    [("True", "", False), ("False", "vllm_mode = 'spmd'", True), ("False", "vllm_mode = 'customized'", False)],
)
def test_vllm_without_a_sleep_mode_fails_on_rocm_unless_verl_does_not_use_it(
    available: str, mode: str, failed: bool, tmp_path: Path
) -> None:
    files = {"verl/workers/engine_workers": "", VLLM_ROLLOUT: mode, "vllm/platforms": PLATFORM.format(available)}

    answer = import_all(tmp_path, "rocm", files)

    assert answer["sleep_mode"] is (available == "True")
    assert ("vllm" in answer["failed"]) == failed


def test_verl_that_cannot_be_imported_ends_the_imports(tmp_path: Path) -> None:
    answer = import_all(tmp_path, "cuda", {"verl/__init__": "raise SystemExit(1)", "vllm/__init__": ""})

    assert (answer["imported"], list(answer["failed"])) == ([], ["verl"])
