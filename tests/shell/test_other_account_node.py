"""Node-local folders of another account, forged verdicts and code in settings."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.shell import other_account
from tests.support.shell.rig import CHECKOUT, SECRET, Rig
from tests.support.shell.step import DEMO, SUCCESS, ended, last_line, leaves

OWN = f"verljob-{os.getuid()}-20-1"
LINKED = "ln -s $PWD/../diary {name}"
FULL = "mkdir -p {name}/tmp/ray/session_1/logs; echo secret > {name}/tmp/ray/session_1/logs/a.log; mkfifo {name}/token"


@pytest.fixture
def local(rig: Rig) -> Path:
    return other_account.shared_folder(rig.root / "local")


@other_account.NEEDS_ROOT
@pytest.mark.parametrize("made", ["mkdir", "mkdir -m 777", ": >", "mkfifo", "ln -s /"])
def test_a_local_folder_of_another_account_exits_with_77_and_its_owner(rig: Rig, local: Path, made: str) -> None:
    other_account.attack(local, f"{made} {OWN}-0")
    began = time.monotonic()

    done = rig.node()

    assert time.monotonic() - began < 10
    assert done.returncode == 77, done.stdout
    assert rig.verdict()["cause"] == f"{local}/{OWN}-0 on n1 belongs to nobody"
    assert "VERLJOB_LOCAL" in rig.verdict()["fix"]
    assert [path.name for path in local.iterdir()] == [f"{OWN}-0"]


def sweep(rig: Rig) -> subprocess.CompletedProcess[str]:
    environment = rig.step_environment(0, SLURMD_NODENAME="n2")
    return rig.run("bash", str(CHECKOUT / "slurm" / "node.sh"), "sweep", **environment)


@other_account.NEEDS_ROOT
@pytest.mark.parametrize("made", [FULL, "mkfifo {name}", ": > {name}", LINKED], ids=["folder", "FIFO", "file", "link"])
def test_a_sweep_does_not_adopt_a_folder_of_another_account(rig: Rig, local: Path, made: str) -> None:
    """By a link, a private file of the account would be copied to a public place."""
    diary = rig.root / "diary" / "tmp" / "ray" / "session_1" / "logs" / "diary.log"
    diary.parent.mkdir(parents=True)
    diary.write_text(SECRET)
    other_account.attack(local, made.format(name=f"{OWN}-1"))
    began = time.monotonic()

    done = sweep(rig)

    assert time.monotonic() - began < 10
    assert done.returncode == 0, done.stderr
    assert f"{OWN}-1 belongs to nobody" in done.stderr
    assert not list(rig.run_dir.glob("nodes/*/ray/*"))
    assert diary.exists()
    assert [path.name for path in local.iterdir()] == [f"{OWN}-1"]


def test_a_token_that_is_a_fifo_does_not_block_the_sweep(rig: Rig) -> None:
    folder = rig.root / "local" / f"{OWN}-1"
    folder.mkdir()
    os.mkfifo(folder / "token")
    began = time.monotonic()

    done = sweep(rig)

    assert time.monotonic() - began < 10
    assert done.returncode == 0, done.stderr
    assert not folder.exists()


CODE = "UID[$(id>$FAKE/pwned)]"
CODES = ("08", "300", "1" + "0" * 20)
FORGED = [
    f"1-n2\tcode={CODE}\torigin=self\tstage=train\thost=n2\tcause=x\tfix=",
    f"{CODE}-n2\tcode=7\torigin=self\tstage=train\thost=n2\tcause=x\tfix=",
    "../../../../escaped\tcode=7\torigin=self\tstage=train\thost=n2\tcause=x\tfix=",
    "1-../../../escaped\tcode=7\torigin=self\tstage=train\thost=n2\tcause=x\tfix=",
    "1-n1\tcode=7\torigin=self\tstage=train\thost=n2\tcause=x\tfix=",
    "9-n9\tcode=7\torigin=self\tstage=train\thost=n2\tcause=x\tfix=",
    "01-n2\tcode=7\torigin=self\tstage=train\thost=n2\tcause=x\tfix=",
    "1-n2\t=x",
    "1-n2\tcode=7",
    "1-n2",
    "",
    *[f"1-n2\tcode={code}\torigin=self\tstage=train\thost=n2\tcause=x\tfix=" for code in (*CODES, "-1", "")],
    "1-n2\tcode=7\torigin=$(id)\tstage=train\thost=n2\tcause=x\tfix=",
    "1-n2\tcode=7\torigin=self\tstage=a[$(id)]\thost=n2\tcause=x\tfix=",
    "1-n2\tcode=7\torigin=self\tstage=train\thost=n2,n3 Reservation=x\tcause=x\tfix=",
]  # fmt: skip


@pytest.mark.parametrize("line", FORGED)
def test_a_forged_verdict_line_is_printed_as_output(rig: Rig, line: str) -> None:
    rig.fake("line", f"verljob-verdict\t{line}\n")
    rig.fake("step", f'cat "$FAKE/line" >&2\n{SUCCESS}')

    done = rig.launch(DEMO)

    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((rig.run_dir / "result.json").read_text())["code"] == 0
    assert sorted(path.name for path in (rig.run_dir / "nodes").iterdir()) == ["0-n1", "1-n2"]
    assert not (rig.root / "fake" / "pwned").exists()
    assert not list(rig.root.rglob("escaped*"))
    assert line.strip() in done.stderr


@pytest.mark.parametrize(("code", "taken"), [*((code, 76) for code in (*CODES, CODE)), ("7", 7), ("255", 255)])
def test_a_malformed_verdict_file_exits_with_a_valid_code(rig: Rig, code: str, taken: int) -> None:
    text = f"=x\nUID[1]=2\n{CODE}=1\ncode={code}\norigin=self\nstage=train\nhost=n1\ncause=\x1b]0;x\x07y\nfix=\n"
    rig.fake("verdict", text)
    rig.fake("step", 'cd "$VERLJOB_RUN_DIR/nodes"; mkdir 0-n1; cat "$FAKE/verdict" > 0-n1/verdict\n')

    done = rig.launch(DEMO)

    assert done.returncode == taken, done.stdout
    assert last_line(done).startswith(f"verdict: {taken} (")
    assert json.loads((rig.run_dir / "result.json").read_text())["code"] == taken
    assert not (rig.root / "fake" / "pwned").exists()
    assert "\x1b" not in done.stdout


def test_a_cause_is_printed_without_terminal_control_characters(rig: Rig) -> None:
    rig.fake("step", leaves((0, ended(7, cause="'\x1b[2Ja=b;$(id)'")), (1, ended(143, origin="signal"))))

    assert last_line(rig.launch(DEMO)).endswith(":  [2Ja=b;$(id)")


@pytest.mark.parametrize("override", ["=1", "~", "+=", "+", "++=2", "~=3", " =4"])
@pytest.mark.parametrize("dry", ["", "1"])
def test_an_override_without_a_key_exits_with_64(rig: Rig, override: str, dry: str) -> None:
    done = rig.launch(DEMO, "a=1", override, VERLJOB_DRY_RUN=dry)

    assert done.returncode == 64
    assert f"'{override}' is not an override of the recipe {DEMO}" in last_line(done)


@pytest.fixture
def _cores_allowed() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


@pytest.mark.usefixtures("_cores_allowed")
@pytest.mark.parametrize("runtime", ["docker", "podman"])
def test_a_container_writes_no_core_dump_with_the_token(rig: Rig, runtime: str) -> None:
    rig.fake("container", 'ulimit -c > "$FAKE/core"\n' + rig.container("code=0"))

    rig.node(VERLJOB_RUNTIME=runtime)

    argv = rig.docker_run()
    assert "core=0" in [argv[index + 1] for index, word in enumerate(argv) if word == "--ulimit"]
    assert rig.faked("core") == "0\n"  # of the client, and of what bare or podman without root starts


@pytest.mark.usefixtures("_cores_allowed")
def test_the_step_writes_no_core_dump_with_the_token(rig: Rig) -> None:
    rig.fake("step", f'echo "$(ulimit -S -c) $(ulimit -H -c)" > "$FAKE/core"\n{SUCCESS}')

    rig.launch(DEMO)

    assert rig.faked("core") == "0 0\n"


RUN_BY_COUNTING = "UID[$(id>$FAKE/pwned)]"
COUNTED = ["VERLJOB_PULLS", "VERLJOB_PULL_TIMEOUT_S", "VERLJOB_PORTS", "VERLJOB_PORT_RANGE", "VERLJOB_SAVE_TIMEOUT_S"]
BY_SLURM = ["SLURM_RESTART_COUNT", "SLURM_JOB_END_TIME", "SLURM_JOB_CPUS_PER_NODE"]


@pytest.mark.parametrize("name", [*COUNTED, *BY_SLURM])
def test_a_numeric_setting_with_code_exits_with_64(rig: Rig, name: str) -> None:
    rig.fake("step", SUCCESS)

    rig.environment[name] = RUN_BY_COUNTING
    done = rig.launch(DEMO)

    assert done.returncode == 64, done.stdout + done.stderr
    assert name in last_line(done)
    assert not (rig.root / "fake" / "pwned").exists()


def test_a_numeric_setting_of_a_table_with_code_exits_with_64(rig: Rig) -> None:
    profile = rig.work / "site.env"
    for name in [*COUNTED, "SLURM_JOB_END_TIME"]:
        profile.write_text(f"{name}={RUN_BY_COUNTING}\n")

        assert rig.launch(DEMO, VERLJOB_PROFILE=str(profile)).returncode == 64
        assert not (rig.root / "fake" / "pwned").exists()


@pytest.mark.parametrize(
    "name", ["SLURM_NODEID", "SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "VERLJOB_PULLS", "VERLJOB_PULL_TIMEOUT_S"]
)
def test_a_numeric_setting_of_a_node_with_code_exits_with_64(rig: Rig, name: str) -> None:
    done = rig.run("bash", str(CHECKOUT / "slurm/node.sh"), **{**rig.step_environment(0), name: RUN_BY_COUNTING})

    assert done.returncode == 64
    assert f"{name} is '{RUN_BY_COUNTING}'" in done.stderr
    assert not (rig.root / "fake" / "pwned").exists()


def test_unset_of_a_table_runs_no_code(rig: Rig) -> None:
    profile = rig.work / "site.env"
    profile.write_text(
        "unset=BASH_VERSINFO[$(id>$FAKE/pwned)] PIPESTATUS[$(id>$FAKE/pwned)] ACCOUNT_GIDS[$(id>$FAKE/pwned)]\n"
    )

    done = rig.node(VERLJOB_PROFILE=str(profile))

    assert done.returncode == 64, done.stdout
    assert not (rig.root / "fake" / "pwned").exists()
    assert "which is not a variable name" in rig.verdict()["cause"]
