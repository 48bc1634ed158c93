from __future__ import annotations

import asyncio
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from verl_node.ray_node import environment, worker_setup
from verl_node.settings.ports import HeadPorts, NodePorts
from verl_node.settings.settings import Settings
from verl_node.supervision import stacks

SPIES = {
    "that answers": 'echo "Process $4"; echo "Thread 1 (idle): \\"MainThread\\""; echo "    wait (train.py:7)"',
    "that may not": 'echo "Error: Permission Denied: Try running again with elevated permissions" >&2; exit 1',
    "that hangs": "exec sleep 60",
}


@pytest.fixture
def child() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process.pid
    process.kill()
    process.wait()


def written(folder: Path, spy: str) -> tuple[str, str]:
    if spy:
        (folder / "py-spy").write_text(f"#!/bin/sh\n{spy}\n")
        (folder / "py-spy").chmod(0o755)
    path = folder / "nodes" / "0-n1" / "stacks-1.txt"
    environ = {**os.environ, "PATH": f"{folder}:/bin:/usr/bin" if spy else str(folder)}
    return asyncio.run(stacks.write(path, environ)), path.read_text()


def test_the_stack_of_every_python_process_below_is_written(tmp_path: Path, child: int) -> None:
    said, text = written(tmp_path, SPIES["that answers"])

    assert said.startswith("stacks of 1 of 1 Python processes")
    assert f"== {child} {sys.executable}" in text
    assert "\nState:\t" in text
    assert "wait (train.py:7)" in text


def test_the_training_comes_before_rays_own_helpers(tmp_path: Path, child: int) -> None:
    script = "import time; time.sleep(60)"
    with subprocess.Popen(["ray::IDLE", "-c", script], executable=sys.executable) as idle:
        _, text = written(tmp_path, SPIES["that answers"])
        idle.kill()

    assert re.findall(r"^== (\d+) ", text, re.MULTILINE) == [str(child), str(idle.pid)]


@pytest.mark.usefixtures("child")
def test_a_missing_permission_of_py_spy_is_reported_with_the_reason(tmp_path: Path) -> None:
    said, text = written(tmp_path, SPIES["that may not"])

    assert "stacks of 0 of 1" in said
    assert "yama/ptrace_scope is " in said
    assert "Permission Denied" in text


@pytest.mark.usefixtures("child")
def test_without_py_spy_the_kernel_states_are_written(tmp_path: Path) -> None:
    said, text = written(tmp_path, "")

    assert "ray[default] installs it" in said
    assert "State:" in text


@pytest.mark.usefixtures("child")
def test_a_hanging_py_spy_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "_PROCESS_S", 0.3)

    _, text = written(tmp_path, SPIES["that hangs"])

    assert "py-spy did not answer" in text


def test_ray_workers_import_the_setup_for_py_spy() -> None:
    ports = NodePorts.divide(20000, 20511, HeadPorts.parse("6380,6379,8265"))
    built = environment.build(Settings.from_env({}), ports=ports, gpus=0, ray=(2, 60), training={})

    assert importlib.import_module(built["RAY_preload_python_modules"]) is worker_setup
