"""slurm/lib/common/ports.sh: a block of ports is locked for all accounts of a node."""

from __future__ import annotations

import os
import socket
import subprocess

import pytest

from tests.support.shell.rig import CHECKOUT, Rig

PORTS = "common/log common/verdict common/ports"


SHOW = "trap '[[ -z ${VERDICT[code]:-} ]] || verdict::sentence' EXIT\n"  # as in node.sh


def reserve(rig: Rig, script: str, **more: str) -> subprocess.CompletedProcess[str]:
    settings = {"VERLJOB_PORT_RANGE": "20000-32767", "VERLJOB_PORTS": "512", **more}
    return rig.source(PORTS, f"{SHOW}ports::read_range\n{script}\ntrap - EXIT", **settings)


TAKE = 'ports::reserve "$PORTS_LOW" "$PORTS_HIGH" 512 0; echo "$PORTS_FIRST-$PORTS_LAST"'


def test_two_jobs_never_get_one_block(rig: Rig) -> None:
    both = reserve(rig, f'{TAKE}\n(exec 7<&-; bash -c "$AGAIN")', AGAIN=again())

    assert both.stdout.split() == ["20000-20511", "20512-21023"]


def again() -> str:
    """A script that reserves in another process; as text, since its account may not see this checkout."""
    lines = [(CHECKOUT / "slurm" / "lib" / f"{name}.sh").read_text() for name in PORTS.split()]
    return "\n".join(
        ["set -Eeuo pipefail", "HOST=n1 STAGE=checks ENDING=", *lines, SHOW, "ports::read_range", TAKE, "trap - EXIT"]
    )


def test_a_block_is_free_when_its_holder_has_ended(rig: Rig) -> None:
    assert [reserve(rig, TAKE).stdout for _ in range(2)] == ["20000-20511\n"] * 2


def test_a_released_block_leaves_no_lock(rig: Rig) -> None:
    reserve(rig, f"{TAKE}\nports::release")

    assert list((rig.root / "ports").iterdir()) == []


def test_an_overlapping_block_of_another_size_is_skipped(rig: Rig) -> None:
    smaller = TAKE.replace('"$PORTS_LOW" "$PORTS_HIGH" 512 0', "20000 20100 10 3")

    both = reserve(rig, f'{smaller}\n(exec 7<&-; bash -c "$AGAIN")', AGAIN=again())

    assert both.stdout.split() == ["20030-20039", "20512-21023"]


def test_only_unlocked_blocks_are_removed(rig: Rig) -> None:
    smaller = TAKE.replace('"$PORTS_LOW" "$PORTS_HIGH" 512 0', "32512 32767 3 0")
    reserve(rig, smaller)  # nobody gives it back
    count = 'before=("$VERLJOB_PORTS_FOLDER"/*); (ports::remove_stale); ls "$VERLJOB_PORTS_FOLDER"; echo ${#before[@]}'
    done = reserve(rig, f"{TAKE}\n{count}")
    reserve(rig, "ports::remove_stale")

    block, left, before = done.stdout.split()
    assert (left.partition(".")[0], before) == (block, "2")
    assert list((rig.root / "ports").iterdir()) == []


def test_a_block_with_a_listener_is_skipped(rig: Rig) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        low = port - port % 8
        script = f'PORTS_LOW={low} PORTS_HIGH={low + 15}; ports::reserve {low} {low + 15} 8 0; echo "$PORTS_FIRST"'
        done = reserve(rig, script)

    assert done.stdout == f"{low + 8}\n"


def test_no_free_block_exits_with_69(rig: Rig) -> None:
    done = reserve(
        rig,
        'ports::reserve 20000 20511 512 0\n(exec 7<&-; bash -c "$AGAIN")',
        AGAIN=again().replace('"$PORTS_LOW" "$PORTS_HIGH"', "20000 20511"),
    )

    assert done.returncode == 69


def test_the_range_ends_below_the_ephemeral_ports(rig: Rig) -> None:
    live = rig.work / "range"
    live.write_text("25000\t60999\n")
    script = f'ports::read_range "{live}"; echo "$PORTS_LOW-$PORTS_HIGH"'

    assert reserve(rig, script).stdout == "20000-24999\n"

    live.write_text("9000\t65500\n")
    done = reserve(rig, script)
    assert done.returncode == 64
    assert "ephemeral ones, which begin at 9000" in done.stdout


@pytest.mark.skipif(os.getuid() != 0, reason="takes the place of another user, which only root can")
def test_the_lock_works_between_users(rig: Rig) -> None:
    folder = rig.root
    while not folder.stat().st_mode & 0o001:  # the runner's own, down from the machine's temporary folder
        folder.chmod(0o755)
        folder = folder.parent
    nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups"

    first = reserve(rig, f'{TAKE}\n(exec 7<&-; {nobody} bash -c "$AGAIN")', AGAIN=again())
    second = reserve(rig, TAKE)  # the other's lock exists, and no process holds it

    assert first.stdout.split() == ["20000-20511", "20512-21023"], first.stderr
    assert second.stdout == "20000-20511\n"


def test_a_node_waits_for_a_free_pull_slot_until_the_timeout(rig: Rig) -> None:
    """The second waits for the first; a slot that is never released is waited for until the timeout."""
    script = (
        'image::acquire_pull_slot; first=$PULL_SLOT; (sleep 1; rmdir -- "$first") & '
        "PULL_SLOT=''; image::acquire_pull_slot; echo \"${PULL_SLOT##*/} $SECONDS\"\n"
        "PULL_SLOT=''; VERLJOB_PULL_TIMEOUT_S=1; image::acquire_pull_slot; echo \"none: $PULL_SLOT\""
    )
    done = rig.source("common/log node/image", script, VERLJOB_PULLS="1", VERLJOB_RUN_DIR=str(rig.work))

    turn, seconds = done.stdout.splitlines()[0].split()
    assert (turn, done.stdout.splitlines()[1]) == ("1", "none: ")
    assert int(seconds) >= 1
    assert "no free slot to pull after 1 s" in done.stderr
