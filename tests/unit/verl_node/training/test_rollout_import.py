"""Import of a rollout, with minimal copies of several releases of verl and with incomplete packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from verl_node.training import rollout

from tests.support.paths import ENTRYPOINTS

REGISTRY = """
import importlib
_ROLLOUT_REGISTRY = {("vllm", "async"): "verl.workers.rollout.vllm_rollout", ("hf", "async"): "plugin"}

def get_rollout_class(name, mode):
    assert (name, mode) in _ROLLOUT_REGISTRY, f"Rollout {name} with mode {mode} not found"
    return importlib.import_module(_ROLLOUT_REGISTRY[(name, mode)])
"""
VLLM = {"vllm/__init__.py": "", "vllm/engine.py": "import xgrammar\n"}
ROLLOUT = "verl/workers/rollout"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for parent in path.relative_to(folder).parents:
            if str(parent) != ".":
                (folder / parent / "__init__.py").touch()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A minimal verl 0.9, of which only the vLLM server uses the engine."""
    files = {
        f"{ROLLOUT}/base.py": REGISTRY,
        f"{ROLLOUT}/vllm_rollout/vllm_async_server.py": "import vllm.engine\n",
        "plugin.py": "",
    }
    write(tmp_path, {**files, **VLLM})
    return tmp_path


def run(site: Path, *arguments: str) -> dict[str, Any]:
    environ = {**os.environ, "PYTHONPATH": f"{ENTRYPOINTS}:{site}"}
    argv = [sys.executable, "-m", "verl_node.training.rollout_import", *arguments]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_missing_package_is_named_with_its_importer(site: Path) -> None:
    assert run(site, "vllm", "async") == {
        "rollout": "missing",
        "module": "xgrammar",
        "imported_by": f"{site}/vllm/engine.py:1",
        "error": "No module named 'xgrammar'",
    }


def test_complete_rollout_is_imported(site: Path) -> None:
    write(site, {"xgrammar.py": "print('hello', end='')\n"})

    assert run(site, "vllm", "async") == {"rollout": "imported"}
    assert run(site, "hf", "async") == {"rollout": "imported"}


def test_missing_engine_is_named(site: Path) -> None:
    (site / "vllm" / "__init__.py").unlink()
    (site / "vllm" / "engine.py").unlink()
    (site / "vllm").rename(site / "gone")

    found = run(site, "vllm", "async")

    assert (found["module"], found["imported_by"]) == ("vllm", "")


def test_server_is_imported_only_in_server_mode(site: Path) -> None:
    write(site, {f"{ROLLOUT}/base.py": REGISTRY.replace('"vllm", "async"', '"vllm", "sync"')})

    assert run(site, "vllm", "sync") == {"rollout": "imported"}


def test_class_of_verl_0_4_is_imported(site: Path) -> None:
    write(site, {f"{ROLLOUT}/base.py": "", f"{ROLLOUT}/vllm_rollout/spmd.py": "import vllm.engine\n"})
    (site / ROLLOUT / "vllm_rollout" / "__init__.py").write_text("from .spmd import vllm\n")

    assert run(site, "vllm", "sync")["module"] == "xgrammar"


def test_root_cause_of_a_wrapped_import_error_is_named(site: Path) -> None:
    text = "try:\n    import xgrammar\nexcept ImportError as e:\n    raise ImportError('please install vllm') from e\n"
    write(site, {"vllm/engine.py": text})

    found = run(site, "vllm", "async")

    assert (found["module"], found["error"]) == ("xgrammar", "please install vllm")


def test_optional_import_is_ignored(site: Path) -> None:
    write(site, {"vllm/engine.py": "try:\n    import xgrammar\nexcept ImportError:\n    pass\n"})

    assert run(site, "vllm", "async") == {"rollout": "imported"}


@pytest.mark.parametrize(
    ("files", "arguments", "error"),
    [
        ({"vllm/engine.py": "raise RuntimeError('no GPU')\n"}, ("vllm", "async"), "RuntimeError: no GPU"),
        ({}, ("mine", "async"), "AssertionError: Rollout mine with mode async not found"),
        (
            {"tensorrt_llm/__init__.py": "", f"{ROLLOUT}/base.py": REGISTRY.replace("vllm", "trtllm")},
            ("trtllm", "async"),
            "ModuleNotFoundError: No module named 'verl.workers.rollout.trtllm_rollout'",
        ),
    ],
)
def test_other_errors_are_unknown(site: Path, files: dict[str, str], arguments: tuple[str, ...], error: str) -> None:
    write(site, files)

    assert run(site, *arguments) == {"rollout": "unknown", "error": error}


def test_library_of_the_user_may_provide_a_package(site: Path) -> None:
    write(site, {"mine.py": "import sys, types\nsys.modules['xgrammar'] = types.ModuleType('xgrammar')\n"})

    assert run(site, "vllm", "async", "mine") == {"rollout": "imported"}


def test_import_has_the_lowest_priority_and_is_killed_first(site: Path) -> None:
    text = "import os\nopen(os.environ['SEEN'], 'w').write(f'{os.sched_getscheduler(0)} {os.nice(0)} '"
    write(site, {"xgrammar.py": f"{text} + open('/proc/self/oom_score_adj').read())\n"})
    os.environ["SEEN"] = str(site / "seen")
    try:
        assert run(site, "vllm", "async") == {"rollout": "imported"}
    finally:
        del os.environ["SEEN"]

    assert (site / "seen").read_text().split() == [str(os.SCHED_IDLE), "19", "1000"]


@pytest.mark.parametrize(
    ("module", "roles", "arguments"),
    [
        ("verl.trainer.main_ppo", {"rollout": {"name": "vllm", "mode": "async"}}, ["vllm", "async"]),
        ("verl.trainer.main_ppo", {"rollout": {"name": "hf"}, "model": {"external_lib": "a"}}, ["hf", "sync", "a"]),
        ("verl.trainer.main_ppo", {"rollout": {"name": None}}, []),
        ("verl.trainer.sft_trainer", None, []),
        ("mine.main", {"rollout": {"name": "vllm", "mode": "async"}}, []),
    ],
)
def test_rollout_is_read_from_the_configuration_of_verls_trainers(
    tmp_path: Path, module: str, roles: dict[str, Any] | None, arguments: list[str]
) -> None:
    values = {"trainer": {}} if roles is None else {"actor_rollout_ref": roles}
    (tmp_path / "configuration.json").write_text(json.dumps({"facts": {}, "configuration": values}))

    assert rollout.arguments_of(tmp_path / "configuration.json", module) == arguments
    assert rollout.arguments_of(tmp_path / "none.json", module) == []


@pytest.mark.parametrize(
    "line",
    ['{"rollout"', '{"rollout": [', '{"rollout": 1}', '{"rollout": "missing"}', '{"rollout": "unknown", "error": 1}'],
)
def test_other_json_lines_are_not_answers(line: str) -> None:
    assert rollout._answer(line) is None


def test_every_kind_of_answer_is_parsed() -> None:
    for answer in (
        {"rollout": "imported"},
        {"rollout": "unknown", "error": "RuntimeError: no GPU"},
        {"rollout": "missing", "module": "xgrammar", "imported_by": "", "error": "No module named 'xgrammar'"},
    ):
        assert rollout._answer(json.dumps(answer)) == answer
