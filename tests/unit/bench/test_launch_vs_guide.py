"""bench/launch/launch_vs_guide.py reads the files of every way alike, also after its job has ended."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench.launch import launch_vs_guide
from bench.launch.launch_vs_guide import FAILED, Launch, measure, parse_events, parse_output
from slurm.testbed.cluster import Cluster
from tests.support.paths import CHECKOUT, ENTRYPOINTS, RECORDED

EVENTS = RECORDED / "run_dir" / "events.jsonl"
CHECKED_AT = 1795246651.511  # in EVENTS
LAUNCH = CHECKOUT / "bench" / "launch"
# Commands of a node for the scripts: a step and a container run their command here, and nothing sleeps.
FAKES = {
    "scontrol": "echo n1; echo n2",
    "srun": 'while [[ $1 == --* ]]; do shift; done; exec "$@"',
    "docker": """case $1 in
    exec) shift 2; exec "$@" ;;
    run) while (($#)) && [[ $1 != -- ]]; do shift; done; shift; exec "$@" ;;
esac""",
    "ray": "echo a warning >&2",
    "sleep": ":",
}
RAY = (
    'def init(**_): print("a line of Ray")\ndef nodes(): return [{"Alive": True}, {"Alive": True}, {"Alive": False}]\n'
)


def run_script(name: str, folder: Path) -> str:
    """Run a script of bench/launch/ with fakes; return its output."""
    for command, text in FAKES.items():
        (folder / command).write_text(f"#!/bin/bash\n{text}\n")
        (folder / command).chmod(0o755)
    (folder / "ray.py").write_text(RAY)
    slurm = {"SLURM_SUBMIT_DIR": str(LAUNCH), "SLURM_JOB_ID": "7", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    path = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(folder), "BENCH_IMAGE": "verl.cpu"}
    argv = ["bash", str(LAUNCH / f"{name}.sh")]
    return subprocess.run(argv, env={**slurm, **path}, capture_output=True, text=True, check=True, timeout=20).stdout


@pytest.mark.parametrize("name", ["guide", "minimum", "symmetric"])
def test_output_of_a_script_has_time_and_nodes(name: str, tmp_path: Path) -> None:
    begin = time.time()
    launch = parse_output(run_script(name, tmp_path), begin)

    assert launch is not None
    assert launch.nodes == 2
    assert 0 <= launch.seconds < 20


@pytest.mark.parametrize("text", ["", "NODES 2\n", "CHECKED 1795.5\n", "NODES 2\nCHECKED 17"])
def test_incomplete_output_is_no_launch(text: str) -> None:
    assert parse_output(text, 0) is None


def test_events_have_the_time_of_the_check_and_the_nodes() -> None:
    assert parse_events(EVENTS.read_text(), 0) == Launch(CHECKED_AT, 2)


def test_events_before_the_check_are_no_launch() -> None:
    before = EVENTS.read_text().partition('"phase": "cluster", "event": "end"')[0]

    assert parse_events("", 0) is None
    assert parse_events(before, 0) is None


def test_the_head_logs_the_note_that_is_counted() -> None:
    head = (ENTRYPOINTS / "verl_node" / "node" / "head.py").read_text()

    assert " ran at {" in head


class Job:
    """A cluster with one job: its state and file by the number of polls; ``cancelled`` after scancel."""

    def __init__(self, ends_after: int, text_by_poll: dict[int, str]) -> None:
        self.nodes = ["n1", "n2"]
        self.polls, self.cancelled = 0, False
        self._ends_after, self._texts = ends_after, text_by_poll

    def text(self) -> str:
        self.polls += 1
        return self._texts[max(poll for poll in self._texts if poll <= self.polls)]

    def job(self, _: int) -> Any:
        return SimpleNamespace(ended=self.polls >= self._ends_after)

    def host(self, _: str) -> Any:
        return SimpleNamespace(run=self._run)

    def _run(self, argv: list[str], check: bool = True) -> None:
        self.cancelled = self.cancelled or argv == ["scancel", "7"]

    def wait_job(self, _: int, *, timeout_s: float) -> None:
        assert self.cancelled

    def wait_ready(self, *, timeout_s: float) -> None:
        pass


COMPLETE = "NODES 2\nCHECKED 30.0\n"


@pytest.mark.parametrize(
    ("ends_after", "texts", "launch"),
    [
        pytest.param(99, {1: "", 3: COMPLETE}, Launch(10, 2), id="runs after its check"),
        pytest.param(1, {1: "", 2: COMPLETE}, Launch(10, 2), id="ends between two polls"),
        pytest.param(2, {1: "", 2: "NODES 2\n"}, FAILED, id="ends without a check"),
        pytest.param(99, {1: ""}, FAILED, id="hangs"),
    ],
)
def test_files_are_read_after_the_job_has_ended(
    ends_after: int, texts: dict[int, str], launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_vs_guide, "LAUNCH_TIMEOUT_S", 1)
    cluster = Job(ends_after, texts)

    measured = measure(cast("Cluster", cluster), 7, lambda: parse_output(cluster.text(), 20))

    assert measured == launch
    assert cluster.cancelled
