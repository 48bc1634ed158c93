"""Health check runs, and nodes that fail a check."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.support.node.supervised import Job


def recorded(job: Job) -> dict[str, dict[str, str]]:
    """The severity of each check on each node, as checks.json has it."""
    told = json.loads((job.run_dir / "checks.json").read_text())
    return {node["host"]: {one["check"]: one["severity"] for one in node["outcomes"]} for node in told["nodes"]}


def doctor(job: Job, *nodes: int, **changes: str) -> None:
    job.start(*nodes, VERLJOB_DOCTOR="quick", VERLJOB_RECIPE="cluster", **changes)


def test_a_health_check_run_without_failures_forms_the_cluster_and_ends_with_0(job: Job) -> None:
    doctor(job)

    assert (job.end(0), job.end(1)) == (0, 0)
    assert job.verdict(0)["code"] == "0"
    assert "checks on 2 nodes found nothing" in job.verdict(0)["cause"]
    said = job.output(0)
    assert "folders.run_directory_is_writable" in said
    found = recorded(job)
    assert found.keys() == {"n0", "n1"}
    assert found["n0"].keys() == found["n1"].keys()
    assert (job.folder / "joined-127.0.0.3").exists()  # Ray was there on both


def test_a_failed_check_is_in_the_table_with_its_fix_and_the_flag_that_excludes_the_node(job: Job) -> None:
    doctor(job, 0)
    doctor(job, 1, RAY_DEBUG="legacy", RAY_DEBUG_POST_MORTEM="1", NCCL_IB_HCA="mlx5_9")

    assert job.end(0) == 69
    said = job.output(0)
    assert "n1 FAIL debug.one_debugger_is_on" in said
    assert "n1 FAIL nccl.hcas_that_are_named_exist" in said
    told = json.loads((job.run_dir / "checks.json").read_text())
    assert (told["bad"], told["exclude"]) == (["n1"], "--exclude=n1")
    assert (job.verdict(0)["host"], job.verdict(0)["stage"]) == ("n1", "checks")
    assert "sbatch --exclude=n1" in job.verdict(0)["fix"]
    assert not (job.folder / "joined-127.0.0.2").exists()


def test_a_check_that_hangs_on_one_node_does_not_keep_the_others_from_the_table(job: Job, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "yama")
    (job.folder / "site" / "sitecustomize.py").write_text(
        "import os\nif os.environ.get('SLURM_NODEID') == '1':\n"
        f"    from verl_node.checks import limits\n    limits.TRACING = limits.Path({str(tmp_path / 'yama')!r})\n"
    )
    doctor(job, VERLJOB_CHECKS="limits.processes_can_be_traced=fail")

    assert job.end(0) == 69
    assert recorded(job)["n1"]["limits.processes_can_be_traced"] == "fail"
    assert recorded(job)["n0"]["limits.processes_can_be_traced"] == "ok"
    assert "No answer after 5 s." in job.output(0)


def test_every_job_is_checked_and_its_nodes_compared(job: Job) -> None:
    job.start(0)
    job.start(1, VERLJOB_CHECKS="cache.cache_has_room=9e9")

    assert job.end(0) == 0
    assert recorded(job)["n1"]["cache.cache_has_room"] == "warn"
    assert "n1 checks: warning, cache.cache_has_room:" in job.output(0)
    assert "fabric" in job.output(1)


def test_a_node_that_fails_its_checks_ends_the_job_before_ray(job: Job) -> None:
    job.start(0)
    job.start(1, RAY_DEBUG="legacy", RAY_DEBUG_POST_MORTEM="1")

    assert job.end(0) == 69
    assert (job.verdict(0)["host"], job.verdict(0)["stage"]) == ("n1", "checks")
    assert "Unset one of them" in job.verdict(0)["fix"]


def test_an_unknown_check_writes_a_verdict(job: Job) -> None:
    job.start(0, VERLJOB_CHECKS="places.nothing=off")

    assert job.end(0) == 64
    assert (job.verdict(0)["code"], job.verdict(0)["stage"]) == ("64", "checks")


def test_doctor_with_a_recipe_prepares_and_does_not_train(job: Job) -> None:
    job.start(VERLJOB_DOCTOR="quick", FAKE_TRAINING="echo trained")

    assert job.end(0) == 0
    assert "trained" not in job.output(0)
    assert job.result()["phases"]["model"] == 0.5


def test_a_deep_health_check_run_trains(job: Job) -> None:
    job.start(VERLJOB_DOCTOR="deep", FAKE_TRAINING="echo trained")

    assert job.end(0) == 0
    assert "trained" in job.output(0)
