"""`invoke job.explain` finds the files of a job by its number, a log or a folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from slurm.errors import NothingToExplain
from slurm.jobs import explain

FAILURE = "OSError: [Errno 122] Disk quota exceeded: 'x'\n"


def run_dir(folder: Path) -> Path:
    log = folder / "nodes" / "0-n1" / "node.log"
    log.parent.mkdir(parents=True)
    log.write_text(FAILURE)
    return folder


def test_a_job_is_found_by_number_in_its_submit_folder(tmp_path: Path) -> None:
    run_dir(tmp_path / "verljob" / "4711" / "attempt-2")

    explanation = json.loads(explain.explain("4711", folder=tmp_path, as_json=True))

    assert (explanation["class"], explanation["host"]) == ("data", "n1")
    assert explanation["file"].endswith("attempt-2/nodes/0-n1/node.log")


def test_a_given_run_directory_is_found_by_the_jobs_output(tmp_path: Path) -> None:
    named = run_dir(tmp_path / "elsewhere")
    (tmp_path / "slurm-verl-12.out").write_text(f"job         12, r on 1 nodes: n1\nrun folder  {named}\n")

    assert str(named) in explain.explain("12", folder=tmp_path)


def test_an_output_is_read_if_its_run_directory_is_missing(tmp_path: Path) -> None:
    (tmp_path / "slurm-verl-12.out").write_text(f"run folder  /gone\n{FAILURE}")

    assert "slurm-verl-12.out:2" in explain.explain("12", folder=tmp_path)


def test_the_output_of_a_job_with_a_longer_number_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "slurm-x-14711.out").write_text(FAILURE)

    with pytest.raises(NothingToExplain, match="Nothing of job 4711 was found"):
        explain.explain("4711", folder=tmp_path)


@pytest.mark.parametrize("name", ["slurm-4711.out", "slurm-verl-4711.out", "slurm-a-14711-b-4711.out"])
def test_the_output_of_a_job_is_found_under_any_job_name(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(FAILURE)

    assert f"{name}:1" in explain.explain("4711", folder=tmp_path)


def test_the_output_has_no_control_characters(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text(f"\x1b]52;c;aGk=\x07{FAILURE.rstrip()} \u009b2J\u202e\x1b[31mred\x1b[0m\n", encoding="utf-8")

    for as_json in (False, True):
        explanation = explain.explain(str(log), folder=tmp_path, as_json=as_json)
        assert "Disk quota exceeded: 'x' red" in explanation
        assert not set("\x1b\x07\x9b\u202e") & set(explanation)
        assert "u001b" not in explanation


class FakeSlurm:
    """Executables of Slurm on PATH, with the output of a test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def answers(self, name: str, *lines: str) -> None:
        path = self.folder / name
        path.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
        path.chmod(0o755)

    def knows(self, number: int, **fields: str) -> None:
        """Let squeue print the ``fields`` of one job by their specifiers: T, Z, STDOUT."""
        lines = ["#!/bin/sh", f'[ "$1 $2 $3" = "--noheader --states=all --jobs={number}" ] || exit 1', "case $4 in"]
        lines += [f"--format=%{field} | --Format={field}:*) echo '{value}' ;;" for field, value in fields.items()]
        path = self.folder / "squeue"
        path.write_text("\n".join([*lines, "esac", ""]))
        path.chmod(0o755)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return FakeSlurm(tmp_path / "bin")


def test_slurm_provides_the_folder_of_a_job(tmp_path: Path, slurm: FakeSlurm) -> None:
    run_dir(tmp_path / "my work" / "verljob" / "9" / "attempt-1")
    slurm.knows(9, Z=f"{tmp_path}/my work", STDOUT=f"{tmp_path}/out/%x   ")

    assert "first failure data: " in explain.explain("9", folder=tmp_path)


@pytest.mark.parametrize("output", ["{}/logs/slurm-%x-%j.out    ", "../logs/slurm-%x-%j.out"])
def test_slurm_provides_the_folder_of_a_jobs_output(tmp_path: Path, slurm: FakeSlurm, output: str) -> None:
    for name in ("work", "logs"):
        (tmp_path / name).mkdir()
    (tmp_path / "logs/slurm-verl-9.out").write_text(FAILURE)
    slurm.knows(9, Z=f"{tmp_path}/work", STDOUT=output.format(tmp_path))

    assert "slurm-verl-9.out:1" in explain.explain("9", folder=tmp_path)


QUIET = "training begins\nthe widget could not be opened\n"


@pytest.mark.parametrize(
    ("squeue", "sacct", "failure"),
    [
        ("FAILED", "", "unknown: "),
        ("COMPLETED", "FAILED", "none: "),
        ("CANCELLED", "", "none: "),
        ("", "TIMEOUT", "unknown: "),
        ("", "", "none: "),
    ],
)
def test_a_job_that_failed_for_slurm_has_a_failure(
    tmp_path: Path, slurm: FakeSlurm, squeue: str, sacct: str, failure: str
) -> None:
    slurm.knows(12, T=squeue)
    slurm.answers("sacct", sacct)
    (tmp_path / "slurm-verl-12.out").write_text(QUIET)

    assert f"first failure {failure}" in explain.explain("12", folder=tmp_path)


def test_failed_forces_an_explanation_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(QUIET)

    assert "the widget could not be opened" in explain.explain(str(log), folder=tmp_path, failed=True)


def test_a_job_without_files_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NothingToExplain, match="Nothing of job 3 was found"):
        explain.explain("3", folder=tmp_path)


def test_a_path_without_logs_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NothingToExplain, match="No log in"):
        explain.explain(str(tmp_path), folder=tmp_path)
