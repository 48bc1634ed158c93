"""`invoke job.doctor`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from slurm.errors import NoRecord
from slurm.jobs import doctor
from tests.support.paths import CHECKOUT


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A login node whose Slurm has an idle node."""
    (tmp_path / "sinfo").write_text("#!/bin/sh\necho 'idle 2'\n")
    (tmp_path / "sinfo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_passed_checks_are_printed_as_a_table(login: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert doctor.check_host([]) == 0

    assert "login.slurm_answers" in capfd.readouterr().out


def test_failed_checks_return_69_and_json(
    login: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (login / "sinfo").write_text("#!/bin/sh\necho 'slurm_load_partitions: Unable to contact controller' >&2; exit 1\n")
    monkeypatch.setenv("VERLJOB_MODEL", "/nowhere/model")

    assert doctor.check_host(["--json"]) == 69

    report = json.loads(capfd.readouterr().out)
    failed = {one["check"]: one for one in report["nodes"][0]["outcomes"] if one["severity"] == "fail"}
    assert failed.keys() == {"login.slurm_answers", "login.files_that_are_named_exist"}
    assert "Unable to contact controller" in failed["login.slurm_answers"]["seen"]


def test_verljob_checks_applies_to_login_checks_and_accepts_names_of_others(
    login: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (login / "sinfo").unlink()
    monkeypatch.setenv("VERLJOB_CHECKS", "login.slurm_answers=warn rdma.ports_are_up=fail")
    assert doctor.check_host([]) == 0
    monkeypatch.setenv("VERLJOB_CHECKS", "rdma.nothing=off")
    assert doctor.check_host([]) == 64


def test_show_env_prints_variables_and_reasons(login: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert doctor.check_host(["--show-env"]) == 0

    output = capfd.readouterr().out
    assert "NCCL_SOCKET_IFNAME==" in output
    assert "by which this node and the head reach each other" in output
    assert "NCCL_IB_HCA" in output


def test_exclude_bad_prints_the_bad_nodes_of_the_last_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for attempt, hosts in (("2", "n2"), ("10", "n3,n4")):
        folder = tmp_path / "verljob" / "77" / f"attempt-{attempt}"
        folder.mkdir(parents=True)
        (folder / "checks.json").write_text(json.dumps({"exclude": f"--exclude={hosts}"}))

    assert doctor.exclusion("77") == "--exclude=n3,n4"
    assert doctor.exclusion(str(tmp_path / "verljob/77/attempt-2")) == "--exclude=n2"
    with pytest.raises(NoRecord, match=r"no checks\.json"):
        doctor.exclusion("78")


def test_the_task_exits_with_the_code_of_the_checks(login: Path) -> None:
    (login / "sinfo").unlink()
    done = subprocess.run(
        [sys.executable, "-m", "invoke", "job.doctor"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 69, done.stdout + done.stderr
    assert "login.slurm_answers" in done.stdout
