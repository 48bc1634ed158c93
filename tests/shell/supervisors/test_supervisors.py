"""Whole nodes: the supervisors are real, Ray and the training are not."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time

import pytest

from tests.support.node.supervised import ENTRYPOINTS, Job

LASTING = "echo trains; exec sleep 300"
PLATFORM_WITH_USE = """
from dataclasses import replace
from verl_node.gpu import platforms
platforms.PLATFORMS["cpu"] = replace(platforms.PLATFORMS["cpu"], use_command=("echo", "GPU-1a2b, 90, 1024"))
"""


def wait_until_nothing_is_left(job: Job, timeout_s: float = 10.0) -> None:
    end = time.monotonic() + timeout_s
    while job.leftovers() and time.monotonic() < end:
        time.sleep(0.1)
    assert job.leftovers() == []


def test_a_job_writes_its_result_events_and_metrics(job: Job) -> None:
    row = '{"step": 1, "data": {"actor/grad_norm": 0.5, "timing_s/gen": 2.0}}'
    argv = job.folder / "argv"
    job.start(0, FAKE_TRAINING=f"echo trained; echo '{row}' > $VERL_FILE_LOGGER_PATH", FAKE_RAY_ARGV=str(argv))
    job.start(1)

    assert (job.end(0), job.end(1)) == (0, 0)
    said = job.output(0).splitlines()
    assert "trained" in said
    assert not any(line.startswith("verdict") for line in said)  # under Slurm launch.sh has the last word
    assert job.verdict(0) == job.verdict(1)
    result = job.result()
    assert result["code"] == 0
    assert list(result["phases"]) == ["checks", "join", "head", "cluster", "data", "model", "train"]
    assert result["phases"]["data"] == 0.25
    events = [json.loads(line) for line in (job.run_dir / "events.jsonl").read_text().splitlines()]
    assert {event["phase"] for event in events if event["host"] == "n1"} == {"checks", "join", "data", "model"}
    (kept,) = [json.loads(line) for line in (job.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert (kept["step"], kept["host"], kept["phases"]) == (1, "n0", {"gen": 2.0})
    flags = dict(word[2:].split("=") for word in argv.read_text().splitlines() if "=" in word)
    assert (flags["node-ip-address"], flags["num-gpus"], flags["port"]) == ("127.0.0.2", "8", str(job.first_port + 1))
    wait_until_nothing_is_left(job)


def test_a_step_adds_a_row_for_the_gpus_of_every_node(job: Job) -> None:
    (job.folder / "site").mkdir(exist_ok=True)
    (job.folder / "site" / "sitecustomize.py").write_text(PLATFORM_WITH_USE)
    row = '{"step": 3, "data": {}}'
    both_rows = f"until [ $(wc -l < {job.run_dir}/metrics.jsonl) = 2 ]; do sleep 0.05; done"
    job.start(FAKE_TRAINING=f"echo '{row}' > $VERL_FILE_LOGGER_PATH; {both_rows}")

    assert job.end(0) == 0
    rows = [json.loads(line) for line in (job.run_dir / "metrics.jsonl").read_text().splitlines()]
    gpu = {"utilisation_percent": 90, "memory_used_bytes": 1 << 30}
    assert [(row["host"], row["step"], row["gpus"]) for row in rows] == [("n0", 3, [gpu]), ("n1", 3, [gpu])]


def test_the_nodes_and_the_image_are_named_when_all_have_met(job: Job) -> None:
    job.start(FAKE_TRAINING="exit 7")

    assert (job.end(0), job.end(1)) == (7, 0)
    assert job.verdict(1)["code"] == "7"
    said = job.output(0)
    assert "nodes       n0 127.0.0.2 (8 GPUs" in said
    assert "n1 127.0.0.3 (8 GPUs" in said
    assert "sha256:1" in said


def test_a_missing_node_is_named_at_the_deadline(job: Job) -> None:
    job.start(0, VERLJOB_JOIN_TIMEOUT_S="1")

    assert job.end(0) == 75
    assert "n1: never connected" in job.verdict(0)["cause"]
    assert job.verdict(0)["host"] == "n1"


def test_the_last_line_of_a_missing_node_is_quoted(job: Job) -> None:
    folder = job.run_dir / "nodes" / "1-n1"
    folder.mkdir(parents=True)
    (folder / "node.log").write_text("n1: node 1 of job 7\nn1: image verl.cpu is sha256:1\n\n")
    job.start(0, VERLJOB_JOIN_TIMEOUT_S="1")

    assert job.end(0) == 75
    assert "n1: never connected, its last line is: n1: image verl.cpu is sha256:1" in job.verdict(0)["cause"]


def test_the_head_waits_for_a_node_that_pulls_its_image(job: Job) -> None:
    bringing = job.run_dir / "nodes" / "1-n1" / "bringing"
    bringing.parent.mkdir(parents=True)
    bringing.touch()
    job.start(0, VERLJOB_JOIN_TIMEOUT_S="3", FAKE_TRAINING="exit 7")
    time.sleep(5)
    assert job.processes[0].poll() is None, job.output(0)
    job.start(1, VERLJOB_JOIN_TIMEOUT_S="3")

    assert job.end(0) == 7


def test_pulling_an_image_has_its_own_deadline(job: Job) -> None:
    bringing = job.run_dir / "nodes" / "1-n1" / "bringing"
    bringing.parent.mkdir(parents=True)
    bringing.touch()
    job.start(0, VERLJOB_JOIN_TIMEOUT_S="1", VERLJOB_PULL_TIMEOUT_S="3")

    assert job.end(0) == 75


def test_a_node_whose_ray_does_not_join_is_named_with_its_last_event(job: Job) -> None:
    job.start(VERLJOB_JOIN_TIMEOUT_S="3", FAKE_DEAD="127.0.0.3")

    assert job.end(0) == 75
    assert "n1: Ray has none of 8 GPUs (join, note `ray start` at 127.0.0.3 joins" in job.verdict(0)["cause"]


def test_a_failed_ray_start_gives_71_with_its_last_line_and_node(job: Job) -> None:
    job.start(0, FAKE_DEAD="127.0.0.3")
    job.start(1, FAKE_RAY="fail")

    assert job.end(0) == 71
    assert (job.verdict(0)["host"], job.verdict(1)["code"]) == ("n1", "71")
    assert "ERROR: port 6379 is taken" in job.verdict(0)["cause"]
    assert "INFO" not in job.verdict(0)["cause"]


def test_different_images_end_with_69_before_ray_starts(job: Job) -> None:
    argv = job.folder / "argv"
    job.start(0, FAKE_RAY_ARGV=str(argv))
    job.start(1, VERLJOB_IMAGE_DIGEST="sha256:2", FAKE_RAY_ARGV=str(argv))

    assert job.end(0) == 69
    assert "n1 runs image sha256:2, n0 runs sha256:1" in job.verdict(0)["cause"]
    assert not argv.exists()


def test_a_wrong_token_is_refused_and_the_head_keeps_waiting(job: Job) -> None:
    (job.folder / "wrong").write_text("fedcba9876543210")
    job.start(0, VERLJOB_JOIN_TIMEOUT_S="2")
    job.start(1, VERLJOB_TOKEN_FILE=str(job.folder / "wrong"))

    assert job.end(1) == 77
    assert job.end(0) == 75
    assert "turned away" in job.output(0)


def test_no_model_on_a_worker_ends_the_job_with_66_and_its_name(job: Job) -> None:
    job.start(0)
    job.start(1, FAKE_PREPARE="fail")

    assert job.end(0) == 66
    assert (job.verdict(0)["stage"], job.verdict(0)["host"]) == ("model", "n1")


def test_a_lost_worker_ends_the_job_with_76_and_its_name(job: Job) -> None:
    job.start(FAKE_TRAINING=LASTING)
    job.until(0, "^trains")
    job.processes[1].kill()

    assert job.end(0) == 76
    assert job.verdict(0)["host"] == "n1"
    wait_until_nothing_is_left(job)


def test_a_lost_head_ends_its_workers_with_76(job: Job) -> None:
    job.start(FAKE_TRAINING=LASTING)
    job.until(0, "^trains")
    job.processes[0].kill()

    assert job.end(1) == 76
    assert (job.verdict(1)["host"], job.verdict(1)["origin"]) == ("n0", "self")
    wait_until_nothing_is_left(job)


def test_a_raylet_that_ends_is_a_lost_cluster(job: Job) -> None:
    job.start(FAKE_TRAINING=LASTING)
    job.until(0, "^trains")
    os.kill(raylet_of(job.processes[1].pid), signal.SIGTERM)

    assert job.end(0) == 76
    assert job.verdict(0)["host"] == "n1"
    assert "its raylet is gone" in job.verdict(0)["cause"]


def test_term_ends_a_node_within_5_s_and_is_not_its_own_verdict(job: Job) -> None:
    job.start(FAKE_TRAINING=f"trap '' TERM; {LASTING}")
    job.until(0, "^trains")
    asked = time.monotonic()
    job.processes[0].terminate()

    assert job.end(0) == 143
    assert time.monotonic() - asked < 5
    assert job.end(1) == 0
    assert (job.verdict(0)["origin"], job.verdict(1)["origin"]) == ("signal", "signal")
    wait_until_nothing_is_left(job)


def test_a_worker_that_alone_gets_a_signal_is_reported_as_ended_from_outside(job: Job) -> None:
    job.start(FAKE_TRAINING=LASTING)
    job.until(0, "^trains")
    job.processes[1].terminate()

    assert job.end(0) == 76
    verdict = job.verdict(0)
    assert (verdict["host"], verdict["stage"], verdict["origin"]) == ("n1", "cluster", "outside")
    assert "n1 was lost: Ended from outside by SIGTERM" in verdict["cause"]
    wait_until_nothing_is_left(job)


def test_the_end_of_the_lease_ends_a_node(job: Job) -> None:
    job.start(FAKE_TRAINING=LASTING)
    job.until(0, "^trains")
    os.close(job.leases.pop(1))

    assert job.end(1) == 143
    assert "lease" in job.verdict(1)["cause"]
    assert job.end(0) == 76


def test_bad_settings_give_64_and_one_sentence(job: Job) -> None:
    job.start(0, SLURM_JOB_NODELIST="n[0-")

    assert job.end(0) == 64
    assert re.fullmatch("verdict: 64 .* its brackets do not match.*\n", job.output(0))


def test_an_override_against_the_allocation_gives_65_before_the_nodes_meet(job: Job) -> None:
    job.start(0, VERLJOB_OVERRIDES="trainer.nnodes=4")

    assert job.end(0) == 65
    assert "join" not in job.output(0)


def test_head_and_join_form_a_cluster_without_slurm_that_prints_its_usage_and_stays(job: Job) -> None:
    by_hand = {name: "" for name in job.environ(0) if name.startswith("SLURM")}
    job.start(0, arguments=["--head", "--nodes=2", "--gpus=4"], **by_hand, VERLJOB_RECIPE="")
    job.until(0, "node --join")
    target = next(line for line in job.output(0).splitlines() if "--join" in line).split()[-1]
    job.start(1, arguments=["--join", target, "--gpus=4"], **by_hand, VERLJOB_HEAD_ADDRESS="")

    job.until(0, "^submit")
    assert target == f"127.0.0.2:{job.first_port}"
    assert "127.0.0.3 (4 GPUs" in job.output(0)
    address = f"http://127.0.0.1:{job.first_port + 2}"
    runtime_env = f"--runtime-env={ENTRYPOINTS / 'runtime_env.yaml'}"
    assert f"ray job submit --address={address} {runtime_env} --no-wait -- python3 -m verl" in job.output(0)
    assert job.processes[0].poll() is None


def raylet_of(supervisor: int) -> int:
    """Return the raylet that descends from this supervisor."""
    parents = [str(supervisor)]
    while parents:
        found = subprocess.run(["pgrep", "-l", "-P", ",".join(parents)], capture_output=True, text=True, check=True)
        children = dict(line.split(maxsplit=1) for line in found.stdout.splitlines())
        for pid, name in children.items():
            if name == "raylet":
                return int(pid)
        parents = list(children)
    raise AssertionError("no raylet")


@pytest.mark.parametrize("installed", [True, False])
def test_a_training_gets_the_profiles_variables_only_with_a_plugin(job: Job, installed: bool) -> None:
    libraries = job.folder / "libraries"
    libraries.mkdir()
    if installed:
        (libraries / "libnccl-net.so").touch()
    job.start(
        FAKE_TRAINING=f'echo "net=${{NCCL_NET-none}} cross=${{NCCL_CROSS_NIC-none}}" > {job.folder}/seen; echo step:1',
        VERLJOB_PLUGIN_VARIABLES="NCCL_NET=AWS Libfabric;NCCL_CROSS_NIC=1",
        NCCL_CROSS_NIC="0",
        LD_LIBRARY_PATH=str(libraries),
    )

    assert (job.end(0), job.end(1)) == (0, 0)
    assert (job.folder / "seen").read_text() == f"net={'AWS Libfabric' if installed else 'none'} cross=0\n"
    assert ("NCCL_NET AWS Libfabric" in job.output(1)) is installed
