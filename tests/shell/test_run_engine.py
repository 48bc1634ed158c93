"""./run and the engine: choice of the client, start and end of a daemon."""

from __future__ import annotations

import os
import signal
import subprocess
import time

from tests.support.shell.machine import FAKES, Machine, docker


def test_client_with_buildkit_is_chosen_and_reported(machine: Machine) -> None:
    shadow = machine.add_program("docker", docker("28.2.2", buildx=False), machine.bin.parent / "first").parent
    machine.add_program(
        "python3", FAKES["python3"].replace("mkdir -p", 'echo "chosen $VERLJOB_DOCKER" >> "$FAKE_LOG"; mkdir -p')
    )
    done = machine.run("build", PATH=f"{shadow}:{machine.bin}")

    assert done.returncode == 0, done.stderr
    assert machine.calls("chosen") == [f"chosen {machine.bin}/docker"]
    assert f"docker: {machine.bin}/docker 20.10.24, not {shadow}/docker 28.2.2" in done.stderr


def test_client_with_buildx_is_accepted_in_any_version(machine: Machine) -> None:
    machine.add_program("docker", docker("28.2.2", buildx=True))

    assert machine.run("build").returncode == 0


def test_running_engine_is_left_as_it_is(machine: Machine) -> None:
    machine.run("demo")

    assert not machine.calls("dockerd")


def test_engine_is_started_if_none_answers_and_ends_with_the_task(machine: Machine) -> None:
    machine.engine_answers(False)
    done = machine.run("demo", VERLJOB_DOCKER_ROOT="/my data", FAKE_CODE="7")

    started, ended = machine.calls("dockerd")
    assert done.returncode == 7, done.stderr
    assert started.endswith("--data-root /my data")
    assert ended == "dockerd ended"
    assert not (machine.state / "up").exists()


def test_term_ends_the_task_and_then_the_engine(machine: Machine) -> None:
    machine.engine_answers(False)
    environment = machine.environment(FAKE_LASTS="1")
    with subprocess.Popen([machine.checkout / "run", "demo"], env=environment, stdin=subprocess.DEVNULL) as running:
        deadline = time.monotonic() + 30
        while not machine.calls("invoke"):
            assert time.monotonic() < deadline, "the task was never started"
            time.sleep(0.05)
        os.kill(running.pid, signal.SIGTERM)
        code = running.wait(timeout=20)

    assert code == 128 + signal.SIGTERM
    assert machine.calls("dockerd")[-1] == "dockerd ended"


def test_engine_stays_up_until_the_cluster_is_removed(machine: Machine) -> None:
    machine.engine_answers(False)
    machine.run("testbed.up")
    stayed = (machine.state / "up").exists()
    machine.run("testbed.down")

    assert stayed
    assert machine.calls("dockerd")[-1] == "dockerd ended"


def test_engine_that_does_not_start_fails_with_its_last_output(machine: Machine) -> None:
    machine.engine_answers(False)
    done = machine.run("demo", FAKE_DOCKERD_FAILS="1")

    assert done.returncode == 69
    assert "no space left on device" in done.stderr


def test_account_without_access_to_the_engine_gets_the_group(machine: Machine) -> None:
    machine.engine_answers(False)
    done = machine.run("demo", FAKE_UID="1000", FAKE_REFUSAL="permission denied while trying to connect")

    assert done.returncode == 69
    assert "usermod --append --groups docker tester" in done.stderr


def test_another_data_root_than_the_requested_one_fails(machine: Machine) -> None:
    done = machine.run("demo", VERLJOB_DOCKER_ROOT="/elsewhere")

    assert done.returncode == 69
    assert "/var/lib/docker" in done.stderr
