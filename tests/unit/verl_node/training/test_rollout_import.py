"""What a rollout's import finds, on verl's of several releases in small and on packages that miss something."""

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
    """A verl 0.9 in small, whose vLLM server alone uses the engine."""
    files = {
        f"{ROLLOUT}/base.py": REGISTRY,
        f"{ROLLOUT}/vllm_rollout/vllm_async_server.py": "import vllm.engine\n",
        "plugin.py": "",
    }
    write(tmp_path, {**files, **VLLM})
    return tmp_path


def told(site: Path, *words: str) -> dict[str, Any]:
    environ = {**os.environ, "PYTHONPATH": f"{ENTRYPOINTS}:{site}"}
    argv = [sys.executable, "-m", "verl_node.training.rollout_import", *words]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_a_package_that_the_engine_wants_is_named_with_who_wants_it(site: Path) -> None:
    assert told(site, "vllm", "async") == {
        "rollout": "missing",
        "module": "xgrammar",
        "wanted_by": f"{site}/vllm/engine.py:1",
        "said": "No module named 'xgrammar'",
    }


def test_what_is_whole_is_imported(site: Path) -> None:
    write(site, {"xgrammar.py": "print('hello', end='')\n"})

    assert told(site, "vllm", "async") == {"rollout": "imported"}
    assert told(site, "hf", "async") == {"rollout": "imported"}


def test_an_engine_that_is_not_installed_is_named(site: Path) -> None:
    (site / "vllm" / "__init__.py").unlink()
    (site / "vllm" / "engine.py").unlink()
    (site / "vllm").rename(site / "gone")

    found = told(site, "vllm", "async")

    assert (found["module"], found["wanted_by"]) == ("vllm", "")


def test_the_server_is_imported_for_server_mode_alone(site: Path) -> None:
    write(site, {f"{ROLLOUT}/base.py": REGISTRY.replace('"vllm", "async"', '"vllm", "sync"')})

    assert told(site, "vllm", "sync") == {"rollout": "imported"}


def test_verl_0_4_has_its_class_where_its_workers_look(site: Path) -> None:
    write(site, {f"{ROLLOUT}/base.py": "", f"{ROLLOUT}/vllm_rollout/spmd.py": "import vllm.engine\n"})
    (site / ROLLOUT / "vllm_rollout" / "__init__.py").write_text("from .spmd import vllm\n")

    assert told(site, "vllm", "sync")["module"] == "xgrammar"


def test_the_first_cause_is_named_where_a_library_says_it_in_its_own_words(site: Path) -> None:
    text = "try:\n    import xgrammar\nexcept ImportError as e:\n    raise ImportError('please install vllm') from e\n"
    write(site, {"vllm/engine.py": text})

    found = told(site, "vllm", "async")

    assert (found["module"], found["said"]) == ("xgrammar", "please install vllm")


def test_an_import_that_the_library_does_without_is_none(site: Path) -> None:
    write(site, {"vllm/engine.py": "try:\n    import xgrammar\nexcept ImportError:\n    pass\n"})

    assert told(site, "vllm", "async") == {"rollout": "imported"}


@pytest.mark.parametrize(
    ("files", "words", "said"),
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
def test_what_does_not_say_that_the_training_will_fail_is_no_verdict(
    site: Path, files: dict[str, str], words: tuple[str, ...], said: str
) -> None:
    write(site, files)

    assert told(site, *words) == {"rollout": "unknown", "said": said}


def test_a_library_of_the_users_may_bring_what_the_rollout_wants(site: Path) -> None:
    write(site, {"mine.py": "import sys, types\nsys.modules['xgrammar'] = types.ModuleType('xgrammar')\n"})

    assert told(site, "vllm", "async", "mine") == {"rollout": "imported"}


def test_it_stands_back_behind_everything_and_dies_first(site: Path) -> None:
    text = "import os\nopen(os.environ['SEEN'], 'w').write(f'{os.sched_getscheduler(0)} {os.nice(0)} '"
    write(site, {"xgrammar.py": f"{text} + open('/proc/self/oom_score_adj').read())\n"})
    os.environ["SEEN"] = str(site / "seen")
    try:
        assert told(site, "vllm", "async") == {"rollout": "imported"}
    finally:
        del os.environ["SEEN"]

    assert (site / "seen").read_text().split() == [str(os.SCHED_IDLE), "19", "1000"]


@pytest.mark.parametrize(
    ("module", "roles", "words"),
    [
        ("verl.trainer.main_ppo", {"rollout": {"name": "vllm", "mode": "async"}}, ["vllm", "async"]),
        ("verl.trainer.main_ppo", {"rollout": {"name": "hf"}, "model": {"external_lib": "a"}}, ["hf", "sync", "a"]),
        ("verl.trainer.main_ppo", {"rollout": {"name": None}}, []),
        ("verl.trainer.sft_trainer", None, []),
        ("mine.main", {"rollout": {"name": "vllm", "mode": "async"}}, []),
    ],
)
def test_the_rollout_is_read_from_the_resolved_configuration_of_verls_own_trainers(
    tmp_path: Path, module: str, roles: dict[str, Any] | None, words: list[str]
) -> None:
    values = {"trainer": {}} if roles is None else {"actor_rollout_ref": roles}
    (tmp_path / "configuration.json").write_text(json.dumps({"facts": {}, "configuration": values}))

    assert rollout.words(tmp_path / "configuration.json", module) == words
    assert rollout.words(tmp_path / "none.json", module) == []


@pytest.mark.parametrize(
    "line",
    ['{"rollout"', '{"rollout": [', '{"rollout": 1}', '{"rollout": "missing"}', '{"rollout": "unknown", "said": 1}'],
)
def test_a_line_of_a_library_that_looks_like_the_answer_is_none(line: str) -> None:
    assert rollout._answer(line) is None


def test_each_answer_is_taken() -> None:
    for told in (
        {"rollout": "imported"},
        {"rollout": "unknown", "said": "RuntimeError: no GPU"},
        {"rollout": "missing", "module": "xgrammar", "wanted_by": "", "said": "No module named 'xgrammar'"},
    ):
        assert rollout._answer(json.dumps(told)) == told
