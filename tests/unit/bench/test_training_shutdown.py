"""bench/gpu/training.py: signals, a missing package and what a job leaves, with a fake node.sh and without a GPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from bench.gpu import training, training_job, training_result, training_shutdown, training_table, training_tasks
from bench.gpu.gpu_job import Job
from bench.gpu.training_job import Launch
from bench.gpu.virtual_nodes import VirtualNode

ENGINE = 'subprocess.Popen(["VLLM::EngineCore", "60"], executable="sleep", start_new_session=True)'
# Ends with 143 after TERM, with 1 after its engine's end.
NODE = f"""\
import os, pathlib, signal, subprocess, sys
run = pathlib.Path(os.environ["VERLJOB_RUN_DIR"])
run.mkdir()
engine = {ENGINE}
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
(run / "metrics.jsonl").write_text('{{"step": 1, "time": 1, "phases": {{"step": 1}}, "metrics": {{}}}}\\n')
engine.wait()
sys.exit(1)
"""
# Leaves a process that closed its output and changed its environment, a file and shared memory.
UNTIDY = f"""\
import os, pathlib, signal, subprocess, sys
null = subprocess.DEVNULL
left = subprocess.Popen(["left", "60"], executable="sleep", start_new_session=True, env={{}}, stdout=null, stderr=null)
for name in ("TEMPORARY", "SHARED"):
    pathlib.Path(os.environ[name], "file").touch()
{ENGINE.replace('"60"', '"1"')}.wait()
print("Cannot import openai_harmony")
sys.exit(1)
"""


@contextmanager
def fake_virtual_nodes(count: int) -> Iterator[list[VirtualNode]]:
    """Yield nodes on which a command runs as on this machine."""
    with TemporaryDirectory() as top:
        nodes = [VirtualNode(f"node-{number}", f"192.0.2.{number}", Path(top, str(number))) for number in range(count)]
        for node in nodes:
            node.local.mkdir(parents=True)
            node.command = list  # type: ignore[method-assign, assignment]
        yield nodes


# A worker that leaves a file in its node-local folder if it is cleaned up after KILL, and a head that sees its end.
ON_TWO_NODES = """\
import os, pathlib, signal, sys, time
run, local = pathlib.Path(os.environ["VERLJOB_RUN_DIR"]), pathlib.Path(os.environ["VERLJOB_LOCAL"])
number = os.environ["SLURM_NODEID"]
if "sweep" in sys.argv:
    (run.parent / f"sweep-{number}").touch()
    sys.exit()
(run / f"pid-{number}").write_text(str(os.getpid()))
while number == "1":
    time.sleep(1)
while not (worker := run / "pid-1").exists() or not worker.read_text():
    time.sleep(0.1)
(run / "metrics.jsonl").write_text('{"step": 1, "time": 1, "phases": {"step": 1}, "metrics": {}}\\n')
while (stat := pathlib.Path("/proc", worker.read_text(), "stat")).exists() and ") Z " not in stat.read_text():
    time.sleep(0.1)
local.joinpath("left").touch()
sys.exit(76)
"""


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    (tmp_path / "out").mkdir()
    return Launch(
        tmp_path / "out", "term", "/models/0.5b", random=True, gpus=[], inputs=tmp_path, overrides={}, limit_s=40
    )


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a fake node.sh in Python, which with TERM does not end its engine itself."""
    script = tmp_path / "node.py"
    script.write_text(NODE)

    class FakeJob(Job):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.command = [sys.executable, str(script)]

    monkeypatch.setattr(training_job, "Job", FakeJob)
    monkeypatch.setattr(training_job, "virtual_nodes", fake_virtual_nodes)
    for name in ("TEMPORARY", "SHARED"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(training_shutdown, name, tmp_path / name)
        monkeypatch.setenv(name, str(tmp_path / name))
    for module, name, seconds in ((training_shutdown, "ROLLOUT_S", 0.3), (training_shutdown, "LEFT_S", 1)):
        monkeypatch.setattr(module, name, seconds)
    monkeypatch.setattr(training_tasks, "WATCH_S", 0.1)
    return script


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": "123407"})
    yield process
    process.kill()
    process.wait()


def record(launch: Launch) -> dict[str, Any]:
    return dict(json.loads((launch.folder / "launch.json").read_text()))


@pytest.mark.parametrize(("kind", "code"), [("term", 143), ("kill", 1)])
def test_a_signal_ends_a_job_after_its_first_step(kind: str, code: int, launch: Launch, node: Path) -> None:
    launch.kind = kind

    assert training_job.train(launch) == []
    assert record(launch)["code"] == code
    assert 0 <= record(launch)["ended_s"] < 5
    assert record(launch)["left"] == []
    assert (launch.folder / "explain.txt").exists()


def test_a_node_is_lost_cleaned_up_and_its_local_files_are_counted(
    launch: Launch, node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.write_text(ON_TWO_NODES)
    launch.kind = "lost"
    swept: list[str] = []
    remove = training_job.Job.remove

    def note_and_remove(job: Job) -> None:
        swept.extend(path.name for path in job.folder.glob("sweep-*"))
        remove(job)

    monkeypatch.setattr(training_job.Job, "remove", note_and_remove)

    left = training_job.train(launch)

    assert [problem.rpartition("/")[2] for problem in left] == ["left"]
    assert "/0/l/left" in left[0]
    assert record(launch)["code"] == 76
    assert swept == ["sweep-1"]


@pytest.mark.parametrize(
    ("part", "other", "reason"),
    [
        ("VLLM::EngineCore", "VLLM::Worker", "vLLM's engine was not found"),
        ("metrics.jsonl", "other.jsonl", "no step was logged"),
    ],
)
def test_a_job_without_its_signal_has_a_problem(part: str, other: str, reason: str, launch: Launch, node: Path) -> None:
    launch.kind = "kill"
    node.write_text(NODE.replace(part, other).replace('"60"', '"2"'))

    assert f"no signal was sent: {reason}" in training_job.train(launch)


@pytest.mark.parametrize("kind", ["grpo", "missing"])
def test_what_a_job_leaves_is_a_problem(kind: str, launch: Launch, node: Path, tmp_path: Path) -> None:
    node.write_text(UNTIDY)
    launch.kind = kind

    problem = training_job.train(launch)[-1]
    pid = int(problem.split()[2])
    os.kill(pid, signal.SIGKILL)

    assert problem == f"left: process {pid} left 60, {tmp_path}/SHARED/file, {tmp_path}/TEMPORARY/file"
    assert record(launch)["left_s"] is None


def test_a_process_is_a_jobs_by_its_environment(sleeper: subprocess.Popen[bytes]) -> None:
    assert training_shutdown.Leftovers(123408, alone=False).found() == []  # other tests make files meanwhile
    leftovers = training_shutdown.Leftovers(123407, alone=False)
    deadline = time.monotonic() + 5
    while not leftovers.found() and time.monotonic() < deadline:  # before its exec it has the test's environment
        time.sleep(0.05)

    assert leftovers.found() == [f"process {sleeper.pid} sleep 60"]


def test_the_folder_of_port_locks_is_no_remains_but_a_lock_in_it_is(node: Path) -> None:
    leftovers = training_shutdown.Leftovers(1)
    lock = training_shutdown.TEMPORARY / "verljob-ports" / "20000-20511"
    lock.mkdir(parents=True)

    assert leftovers.found() == [str(lock)]


def test_files_are_not_counted_beside_another_job(node: Path) -> None:
    leftovers = training_shutdown.Leftovers(1, alone=False)
    (training_shutdown.SHARED / "file").touch()

    assert leftovers.found() == []


def test_memory_and_processes_get_time(monkeypatch: pytest.MonkeyPatch) -> None:
    used = iter([[9000, 10], [9000, 10], [70, 10]])
    found = iter([["process 7 x"], []])
    leftovers = training_shutdown.Leftovers(1)
    monkeypatch.setattr(training_shutdown, "used_mib", lambda gpus: next(used))
    monkeypatch.setattr(leftovers, "found", lambda: next(found))
    clock = SimpleNamespace(now=100.0)
    clock.time, clock.sleep = lambda: clock.now, lambda s: setattr(clock, "now", clock.now + s)
    monkeypatch.setattr(training_shutdown, "time", clock)

    after = training_shutdown.wait_clean(100.0, ["GPU-1", "GPU-2"], [10, 10], leftovers)

    assert (after["left_s"], after["freed_s"], after["left"]) == (0.5, 1.0, [])


@pytest.mark.parametrize(
    ("kind", "code", "sound"),
    [
        ("term", 143, True),
        ("term", 0, False),
        ("term", -9, False),
        ("kill", 76, True),
        ("lost", 76, True),
        ("lost", 0, False),
        ("kill", 0, False),
        ("kill", 143, False),
        ("kill", -9, False),
    ],
)
def test_the_exit_code_tells_a_sound_end(kind: str, code: int, sound: bool) -> None:
    assert (training_shutdown.find_problems(kind, code, [{}], "") == []) == sound


def test_a_missing_package_ends_a_job_before_its_training() -> None:
    output = "1.0 ModuleNotFoundError: No module named 'openai_harmony'"

    assert training_shutdown.find_problems("missing", 1, [], output) == []
    assert training_shutdown.find_problems("missing", 0, [{}], "Training Progress:   0%") == [
        "exit code 0",
        "a step was logged",
        "the training began",
        "the output does not name openai_harmony",
    ]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a package in an environment."""
    folder = tmp_path / "environment" / "site" / "harmony_of_a_test"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.setattr(training_shutdown, "MISSING", folder.name)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    return folder


def test_the_missing_package_is_back_also_after_an_error(
    launch: Launch, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(_: Launch) -> list[str]:
        assert not package.exists()
        raise OSError("no space left")

    monkeypatch.setattr(training_job, "train", train)
    with pytest.raises(OSError, match="no space left"):
        training.train_without_package(launch)

    assert [path.name for path in package.parent.iterdir()] == [package.name]
    assert (package / "__init__.py").exists()


def test_a_package_outside_the_environment_stays(
    launch: Launch, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "other"))
    monkeypatch.setattr(training_job, "train", lambda _: pytest.fail("it ran"))

    assert training.train_without_package(launch) == [f"{package.name} is not a package below {tmp_path}/other"]
    assert package.exists()


def test_a_start_has_a_new_cache_and_its_second_job_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def train(launch: Launch) -> list[str]:
        cache = launch.inputs / "compile-cache"
        seen.append((launch.steps, launch.after, [path.name for path in cache.iterdir()]))
        (cache / "compiled").touch()
        return []

    monkeypatch.setattr(training_job, "train", train)
    monkeypatch.setenv("VERLJOB_MODEL", "m")
    options, _ = training.parse(["start", "--out", str(tmp_path), "--inputs", str(tmp_path / "inputs")])
    (options.inputs / "compile-cache" / "old").mkdir(parents=True)

    assert list(training.run("start", "", options).values()) == [[], []]
    assert list(training.run("grpo", "", options).values()) == [[]]
    assert seen == [(1, 0, []), (1, 0, ["compiled"]), (7, 0, ["compiled"])]


@pytest.mark.parametrize("kind", ["start", "term", "kill", "lost"])
def test_a_training_that_is_not_of_interest_is_small_and_has_no_validation(kind: str) -> None:
    changes = training.overrides(kind, "0.5b", 2, training.STEPS_OF[kind], [])

    assert changes["trainer.test_freq"] == changes["trainer.save_freq"] == -1
    assert changes["data.train_batch_size"] == 32


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("VERLJOB_COMPILE_CACHE=", "compile-cache"),
        ("VERLJOB_COMPILE_CACHE=0", "0"),
        ("VLLM_LOGGING_LEVEL=", "INFO"),
        ("VLLM_LOGGING_LEVEL=ERROR", "ERROR"),
    ],
)
def test_a_training_has_the_benchmarks_variable_unless_the_caller_sets_it(
    given: str, used: str, launch: Launch, node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _, value = given.partition("=")
    node.write_text(f'import os\nprint(os.environ["{name}"])')
    launch.kind = "grpo"
    monkeypatch.delenv(name, raising=False)
    if value:
        monkeypatch.setenv(name, value)
    training_job.train(launch)

    assert (launch.folder / "output").read_text().split()[-1].rpartition("/")[2] == used


def test_the_printed_output_is_without_stack_dumps(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["1.0 the cause", *["2.0 [2026-11-24 10:00:00,000 E 1 1] logging.cc:118: @ 0x7f13 ray::core"] * 100]
    (launch.folder / "output").write_text("\n".join(lines))
    monkeypatch.setattr(training_job, "train", lambda _: ["exit code 1"])
    training.do(launch)

    assert capsys.readouterr().out == "FAILED\tout\texit code 1\n1.0 the cause\n"


def test_a_table_has_the_ends_and_no_other_counts_them(launch: Launch, node: Path) -> None:
    training_job.train(launch)
    (launch.folder / "explain.txt").write_text("first failure signal: TERM\nwhere n0\n")
    report = training_table.report([launch.folder])
    row = dict(zip(training_table.ENDS, training_table.ends(training_result.read(launch.folder, 1), launch.folder)))

    assert (row["signal"], row["exit code"], row["explain"]) == (
        "TERM to all processes",
        "143",
        "first failure signal: TERM",
    )
    assert f"| {' | '.join(row.values())} |" in report
    assert "no step after the warm-up" not in report
