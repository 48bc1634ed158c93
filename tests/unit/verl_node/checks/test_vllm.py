"""The deep check that starts vLLM, with an engine that works, fails, generates too little, or hangs."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest
from verl_node.checks.node import vllm
from verl_node.checks.result import Result
from verl_node.settings.settings import Settings
from verl_node.supervision import process_tree

from tests.support.paths import ENTRYPOINTS

SETTINGS = Settings.from_env({"VERLJOB_PLATFORM": "cuda"})
ENGINE = """
import json, os, sys, time
NAMES = ("HF_HUB_OFFLINE", "VLLM_WORKER_MULTIPROC_METHOD", "VLLM_USE_FLASHINFER_SAMPLER")
__version__ = "9.9"
class SamplingParams:
    def __init__(self, **asked): self.asked = asked
class LLM:
    def __init__(self, **asked):
        self.asked = asked
        assert json.load(open(asked["model"] + "/config.json"))["architectures"] == ["Qwen2ForCausalLM"]
        open(os.environ["SEEN"], "w").write(
            json.dumps([asked, *map(os.environ.get, NAMES)])
        )
        self.start()
    def start(self): pass
    def generate(self, prompts, params):
        output = type("Output", (), {"token_ids": [7] * (params.asked["max_tokens"] - int(os.environ.get("FEWER", 0)))})
        return [type("Answer", (), {"outputs": [output]})]
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake vLLM; return its file for tests to change."""
    package = tmp_path / "site" / "vllm"
    package.mkdir(parents=True)
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    monkeypatch.setenv("PYTHONPATH", f"{package.parent}:{ENTRYPOINTS}")
    monkeypatch.syspath_prepend(package.parent)
    (package / "__init__.py").write_text(ENGINE)
    return package / "__init__.py"


def generate(gpus: int = 1) -> Result:
    return vllm.engine_generates(SETTINGS, gpus)


def test_working_engine_is_reported_with_its_times(engine: Path, tmp_path: Path) -> None:
    found = generate(gpus=6)

    assert (found.severity, found.seen.startswith("vLLM 9.9 started on 4 GPUs in ")) == ("ok", True)
    assert "generated 8 tokens in " in found.seen
    seen = (tmp_path / "seen").read_text()
    assert '"tensor_parallel_size": 4' in seen
    assert '"load_format": "dummy"' in seen
    assert seen.endswith(', "1", "spawn", "0"]')


@pytest.mark.parametrize("start", ["pass", "time.sleep(60)"], ids=["works", "hangs"])
def test_no_file_is_left(engine: Path, start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.write_text(ENGINE.replace("def start(self): pass", f"def start(self): {start}"))
    monkeypatch.setattr(vllm, "LIMIT_S", 2 + vllm._MARGIN_S if start != "pass" else vllm.LIMIT_S)
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("TMPDIR", str(own))
    monkeypatch.setattr(tempfile, "tempdir", str(own))

    generate()

    assert (tmp_path / "seen").exists()
    assert list(own.iterdir()) == []


def test_node_without_gpus_runs_on_the_cpu(engine: Path) -> None:
    assert generate(gpus=0).seen.startswith("vLLM 9.9 started on the CPU in ")


def test_failing_engine_is_reported_by_its_first_failure_and_fix(engine: Path) -> None:
    refusal = (
        "Free memory on device (7.34/139.72 GiB) on startup is less than desired GPU memory utilization (0.1, 14)."
    )
    engine.write_text(ENGINE.replace("def start(self): pass", f'def start(self): raise ValueError("{refusal}")'))

    found = generate()

    assert found.severity == "fail"
    assert "(7.34/139.72 GiB)" in found.seen
    assert "nvidia-smi" in found.fix
    assert found.expected


def test_unknown_engine_failure_is_reported_by_its_exception(engine: Path) -> None:
    engine.write_text(ENGINE.replace("def start(self): pass", 'def start(self): raise RuntimeError("odd")'))

    assert "RuntimeError: odd" in generate().seen


def test_engine_with_too_few_tokens_fails(engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEWER", "8")

    assert (generate().severity, "0 tokens" in generate().seen) == ("fail", True)


def test_hanging_engine_is_killed_with_its_descendants(
    engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = "import subprocess; p = subprocess.Popen(['sleep', '60'], start_new_session=True); "
    hangs += f"open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid)); time.sleep(60)"
    engine.write_text(ENGINE.replace("def start(self): pass", f"def start(self): {hangs}"))
    monkeypatch.setattr(vllm, "LIMIT_S", vllm._MARGIN_S + 3.0)
    began = time.monotonic()

    found = generate()

    assert time.monotonic() - began < 10
    assert (found.severity, "neither started nor failed within 3 s" in found.seen) == ("fail", True)
    started = int((tmp_path / "pid").read_text())
    while process_tree.lives(started, "sleep") and time.monotonic() - began < 10:
        time.sleep(0.05)  # it was killed, and on a busy machine ends a moment later
    assert not process_tree.lives(started, "sleep")


def test_image_without_vllm_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "find_spec", lambda name: None)

    assert generate().severity == "idle"
