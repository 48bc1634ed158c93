"""Only the account's own processes count as podman's: another account cannot make it kill, block or wait."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.support.shell import other_account
from tests.support.shell.rig import Rig

pytestmark = other_account.NEEDS_ROOT
NAME = f"verljob-{os.getuid()}-20-1-0"
SHOWN = 'printf \'busy=%s init=%s others=%s\\n\' "$CONMON_BUSY" "$CONMON_INIT" "$CONMON_OTHERS"'
NOTHING = "busy= init= others=\n"


@pytest.fixture
def place(rig: Rig) -> Path:
    return other_account.shared_folder(rig.root / "place")


def find_conmon(rig: Rig, script: str = "") -> str:
    began = time.monotonic()
    done = rig.source("common/log ../runtimes/podman", f"podman::_find_conmon {NAME}\n{SHOWN}\n{script}")
    assert time.monotonic() - began < 5
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("pid", ["echo -1 > pid", "echo 1 > pid", "mkfifo pid", "echo 'a[$(id>pwned)]' > pid"])
def test_a_conmon_of_another_account_is_ignored(rig: Rig, place: Path, pid: str) -> None:
    script = f"{pid}; exec -a /x/conmon bash -c 'echo ready; sleep 60; :' conmon -n {NAME} -p {place}/pid"
    with other_account.start(script, place) as other:
        assert find_conmon(rig) == NOTHING
        other.kill()


def test_a_cleanup_of_another_account_is_ignored(rig: Rig, place: Path) -> None:
    with other_account.start("exec bash -c 'echo ready; sleep 60; :' podman container cleanup 0123", place) as other:
        assert find_conmon(rig) == NOTHING
        other.kill()


@pytest.mark.parametrize(
    "content",
    ["-1", "0", "1x", "", "4194304999", "$OTHER"],
    ids=["all", "0", "1x", "none", "gone", "another account's"],
)
def test_a_pid_file_with_another_content_is_ignored(rig: Rig, place: Path, content: str) -> None:
    with other_account.start("echo ready; exec sleep 60", place) as other:
        text = content.replace("$OTHER", str(other.pid))
        (rig.work / "pid").write_text(f"{text}\n")
        done = rig.source(
            "../runtimes/podman", f'podman::_read_pid_file "{rig.work}/pid" || echo none; echo "${{CONMON_PID:+set}}"'
        )
        other.kill()

    assert done.stdout.startswith("none\n")


@pytest.mark.parametrize("made", ["echo -1 > pause.pid", "mkfifo pause.pid", "ln -s /proc/self/stat pause.pid"])
def test_a_pause_pid_file_of_another_account_is_ignored(rig: Rig, place: Path, made: str) -> None:
    other_account.attack(place, made)
    script = f'PODMAN_PAUSE="{place}/pause.pid"; kill() {{ echo "kill $*"; }}\npodman::_kill_pause_process\necho well'

    done = rig.source("common/log ../runtimes/podman", script)

    assert done.stdout == "well\n", done.stderr


def test_the_accounts_own_pid_file_is_read(rig: Rig) -> None:
    done = rig.source(
        "../runtimes/podman",
        f'echo "$$" > {rig.work}/pid; podman::_read_pid_file {rig.work}/pid; echo "$((CONMON_PID == $$))"',
    )

    assert done.stdout == "1\n"
