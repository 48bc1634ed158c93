"""`launch.sh --debug` turns on Ray's debugger and ptrace on every node; without it there is no ptrace."""

from __future__ import annotations

import os
import shlex

import pytest

from tests.support.shell.rig import CHECKOUT, Rig


def dry_run(rig: Rig, *arguments: str, **more: str) -> str:
    done = rig.launch(
        *arguments, script=None, VERLJOB_DRY_RUN="1", SLURM_JOB_ID="<unset>", VERLJOB_PLATFORM="cpu",
        VERLJOB_HOME=str(CHECKOUT), **more,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("arguments", "mode"),
    [
        (("--debug", "demo_cpu"), "1"),
        (("--debug", "legacy", "demo_cpu"), "legacy"),
        (("--debug=legacy", "demo_cpu"), "legacy"),
    ],
)
def test_debug_sets_the_debugger_and_ptrace_on_every_node(rig: Rig, arguments: tuple[str, ...], mode: str) -> None:
    output = dry_run(rig, *arguments, "trainer.total_epochs=2")
    assert output.count(f"\nVERLJOB_DEBUG={mode}\n") == 2
    assert output.count(" --cap-add SYS_PTRACE ") == 2
    assert "trainer.total_epochs=2" in output.splitlines()[-1]


def test_without_debug_no_container_has_ptrace(rig: Rig) -> None:
    output = dry_run(rig, "demo_cpu")
    assert "SYS_PTRACE" not in output
    assert "\nVERLJOB_DEBUG=1" not in output


def test_the_variable_equals_the_flag(rig: Rig) -> None:
    assert dry_run(rig, "demo_cpu", VERLJOB_DEBUG="1").count(" --cap-add SYS_PTRACE ") == 2


@pytest.mark.parametrize(
    ("arguments", "more", "message"),
    [
        (("--debgu", "demo_cpu"), {}, "'--debgu' is not a flag of launch.sh"),
        (("demo_cpu",), {"VERLJOB_DEBUG": "yes"}, "VERLJOB_DEBUG=yes"),
        (("--debug", "demo_cpu"), {"VERLJOB_DASHBOARD": "0"}, "VERLJOB_DASHBOARD=0 turns off"),
    ],
)
def test_a_wrong_debug_setting_exits_with_64(
    rig: Rig, arguments: tuple[str, ...], more: dict[str, str], message: str
) -> None:
    done = rig.launch(*arguments, VERLJOB_HOME=str(CHECKOUT), script=None, **more)
    assert done.returncode == 64
    assert message in done.stdout + done.stderr


def test_the_banner_explains_how_to_attach(rig: Rig) -> None:
    script = "VERLJOB_RUNTIME=docker VERLJOB_ATTEMPT=1 launch::_print_debugger 30003 n1 2>&1"
    new = rig.source("launch/main", script, VERLJOB_DEBUG="1").stdout
    assert "launch.json" in new
    assert "http://localhost:30003" in new
    assert "anyone who reaches the nodes can run code" in new
    old = rig.source("launch/main", script, VERLJOB_DEBUG="legacy").stdout
    assert (
        "srun --jobid=20 --overlap --pty --nodes=1 --ntasks=1 --nodelist=n1 docker exec --interactive --tty verljob-"
        in old
    )
    assert old.splitlines()[0].endswith(" ray debug")


def test_with_apptainer_ray_debug_enters_the_container(rig: Rig) -> None:
    script = "VERLJOB_RUNTIME=apptainer launch::_print_debugger 30003 n1"
    line = rig.source("launch/main", script, VERLJOB_DEBUG="legacy").stdout.splitlines()[0]
    arguments = shlex.split(line.partition("--nodelist=n1 ")[2])

    assert arguments[:2] == ["bash", "-c"]
    assert arguments[3:] == ["ray", "debug"]
    for name, body in (("pgrep", '[[ "${*: -1}" == "appinit|sinit" ]] && echo 42'), ("nsenter", 'printf "%s " "$@"')):
        program = rig.root / "bin" / name
        program.write_text(f"#!/bin/bash\n{body}\n")
        program.chmod(0o755)
    entered = rig.run(*arguments).stdout
    assert entered.endswith("--target 42 /bin/bash /run/verljob/environment ray debug ")


def test_with_bare_ray_debug_runs_from_the_environment_with_the_jobs_token(rig: Rig) -> None:
    place = "VERLJOB_RUNTIME=bare VERLJOB_IMAGE='/envs/my verl' VERLJOB_LOCAL=/scratch"
    script = f"{place} VERLJOB_ATTEMPT=2 launch::_print_debugger 30003 n1"
    line = rig.source("launch/main", script, VERLJOB_DEBUG="legacy").stdout.splitlines()[0]
    arguments = shlex.split(line.partition("--nodelist=n1 ")[2])

    assert arguments[:2] == ["env", "RAY_AUTH_MODE=token"]
    assert arguments[2] == f"RAY_AUTH_TOKEN_PATH=/scratch/verljob-{os.getuid()}-20-2-0/token"
    assert arguments[3:] == ["/envs/my verl/bin/ray", "debug"]
