"""slurm/lib/common/ports.sh: entries of another account run no code, block no job and fail no job."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.shell.test_ports import SHOW, TAKE, reserve
from tests.support.shell import other_account
from tests.support.shell.rig import CHECKOUT, Rig

pytestmark = other_account.NEEDS_ROOT
LIMIT_S = 10


@pytest.fixture
def folder(rig: Rig) -> Path:
    """The port folder as a site creates it at boot."""
    return other_account.shared_folder(rig.root / "ports")


def in_time(rig: Rig, script: str = TAKE) -> subprocess.CompletedProcess[str]:
    began = time.monotonic()
    done = reserve(rig, script)
    assert time.monotonic() - began < LIMIT_S
    return done


def test_a_name_in_the_port_folder_runs_no_code(rig: Rig, folder: Path) -> None:
    names = ["0-0+UID[$(id -un>$HOME.pwned)]", "20000-20511+UID[$(id -un>$HOME.pwned)]", "1-a[$(id>$HOME.pwned)].1"]
    other_account.attack(folder, "\n".join(f"mkdir -p '{name}'; : > '{name}x'" for name in names))

    done = in_time(rig, f"{TAKE}\nports::release; ports::remove_stale")

    assert done.stdout == "20000-20511\n", done.stderr
    assert not Path(f"{rig.home}.pwned").exists()


@pytest.mark.parametrize(
    "leaves",
    [
        "mkfifo guard",
        "for n in {0..23}; do mkfifo $((20000 + n * 512))-$((20511 + n * 512)){,.1}; done",
        "for n in {0..23}; do ln -s / $((20000 + n * 512))-$((20511 + n * 512)).1; done",
        "for n in {0..23}; do : > $((20000 + n * 512))-$((20511 + n * 512)).1; done",
        "ln -s /dev/tty guard; ln -s gone 20000-20511.7",
        "mkdir 20000-20511.1",
        "mkdir 08000-99999.1 20000-20511.x",
    ],
    ids=["a FIFO as guard", "FIFOs", "links", "files", "more links", "an unlocked block", "names of other forms"],
)
def test_entries_that_are_not_locked_blocks_are_ignored(rig: Rig, folder: Path, leaves: str) -> None:
    other_account.attack(folder, leaves)

    done = in_time(rig)

    assert done.stdout == "20000-20511\n", done.stdout + done.stderr


def test_a_lock_of_another_account_does_not_block_a_job(rig: Rig, folder: Path) -> None:
    script = "exec 3> guard 4< .; flock 3; flock 4; echo ready; exec sleep 60"
    with other_account.start(script, folder) as other:
        began = time.monotonic()
        done = in_time(rig)
        other.kill()

    assert done.stdout == "20000-20511\n", done.stdout + done.stderr
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("mode", ["755", "700"], ids=["locked", "closed to all"])
def test_a_block_of_another_account_is_skipped(rig: Rig, folder: Path, mode: str) -> None:
    script = f"mkdir -m {mode} 20000-20511.1; exec 3< 20000-20511.1; flock 3; echo ready; exec sleep 60"
    with other_account.start(script, folder) as other:
        done = in_time(rig)
        other.kill()

    assert done.stdout == "20512-21023\n", done.stdout + done.stderr


def test_thousands_of_blocks_do_not_delay_a_job(rig: Rig, folder: Path) -> None:
    other_account.attack(folder, "mkdir 20000-32767.{1..3000}")

    done = in_time(rig)

    assert done.returncode == 69
    assert f"{folder}/20000-32767." in done.stdout
    assert "belongs to nobody" in done.stdout


def as_third_account(rig: Rig) -> subprocess.CompletedProcess[str]:
    """Reserve a block as a third account, neither root nor the other one."""
    lines = [
        (CHECKOUT / "slurm" / "lib" / f"{name}.sh").read_text()
        for name in ("common/log", "common/verdict", "common/ports")
    ]
    head = ["set -Eeuo pipefail", "HOST=n1 STAGE=checks ENDING="]
    text = "\n".join([*head, *lines, SHOW, "ports::read_range", TAKE, "trap - EXIT"])
    return rig.run(
        "setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", "bash", "-c", text,
        VERLJOB_PORT_RANGE="20000-32767", VERLJOB_PORTS="512",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("mkdir -m 700 ports", "cannot write port locks to"),
        ("mkdir -m 777 ports", "is not sticky"),
        ("mkdir -m 755 ports", "cannot write port locks to"),
        ("mkfifo ports", "is not a folder, or is a link"),
        (": > ports", "is not a folder, or is a link"),
        ("ln -s gone ports", "is not a folder, or is a link"),
        ("ln -s ../theirs ports", "is not a folder, or is a link"),
    ],
)
@pytest.mark.parametrize("who", ["root", "an account"])
def test_an_unsafe_port_folder_exits_with_77_and_its_owner(rig: Rig, made: str, message: str, who: str) -> None:
    place = other_account.shared_folder(rig.root / "place")
    theirs = rig.root / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    other_account.attack(place, made)
    rig.environment["VERLJOB_PORTS_FOLDER"] = str(place / "ports")

    began = time.monotonic()
    done = reserve(rig, TAKE) if who == "root" else as_third_account(rig)

    assert time.monotonic() - began < LIMIT_S
    assert done.returncode == 77, done.stdout + done.stderr
    assert f"{place}/ports" in done.stdout
    assert "belongs to nobody (uid 65534)" in done.stdout
    assert who == "an account" or message in done.stdout or "is not sticky" in done.stdout
    assert list(theirs.iterdir()) == []


def test_a_sticky_folder_of_another_account_is_used(rig: Rig) -> None:
    place = other_account.shared_folder(rig.root / "place")
    other_account.attack(place, "mkdir -m 1777 ports")
    rig.environment["VERLJOB_PORTS_FOLDER"] = str(place / "ports")

    assert as_third_account(rig).stdout == "20000-20511\n"


def test_a_folder_that_gets_its_mode_later_is_waited_for(rig: Rig) -> None:
    place = other_account.shared_folder(rig.root / "place")
    rig.environment["VERLJOB_PORTS_FOLDER"] = str(place / "ports")
    with other_account.start("mkdir -m 755 ports; echo ready; sleep 0.4; chmod 1777 ports", place):
        done = as_third_account(rig)

    assert done.stdout == "20000-20511\n", done.stdout


JOB = """
set -Eeuo pipefail
HOST=n1 STAGE=checks ENDING=
{libraries}
ports::read_range
ports::reserve 20000 20239 "$1" 0
printf '%s %s\\n' "$PORTS_FIRST" "$PORTS_LAST" > "$2"
read -r _ # until all have theirs
"""


def test_concurrent_jobs_of_two_accounts_never_share_a_port(rig: Rig, folder: Path) -> None:
    """They all try the same port first; the range has room for all."""
    out = other_account.shared_folder(rig.root / "out")
    libraries = "\n".join(
        (CHECKOUT / f"slurm/lib/{name}.sh").read_text() for name in ("common/log", "common/verdict", "common/ports")
    )
    job = rig.work / "job"
    job.write_text(JOB.format(libraries=libraries))
    other_account.make_reachable(rig.work)
    environment = {**rig.environment, "VERLJOB_PORT_RANGE": "20000-32767", "VERLJOB_PORTS": "512"}
    sizes = [10, 7] * 6
    jobs = [
        subprocess.Popen(
            [*(other_account.AS_OTHER if index % 4 < 2 else []), "bash", job, str(size), out / str(index)],
            env=environment,
            stdin=subprocess.PIPE,
        )
        for index, size in enumerate(sizes)
    ]
    deadline = time.monotonic() + 20
    while len(texts := [path.read_text() for path in out.iterdir()]) < len(jobs) or not all(texts):
        if time.monotonic() > deadline or any(process.poll() is not None for process in jobs):
            break
        time.sleep(0.05)
    for process in jobs:
        process.communicate(b"\n")

    blocks = sorted([int(port) for port in path.read_text().split()] for path in out.iterdir())
    assert len(blocks) == len(jobs)
    assert all(before[1] < after[0] for before, after in zip(blocks, blocks[1:])), blocks
