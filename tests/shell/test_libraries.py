"""slurm/lib: tables are data, memory is the job's, a wait returns the code of its child."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from tests.support.shell.rig import CHECKOUT, Rig

SHOW = "trap '[[ -z ${VERDICT[code]:-} ]] || verdict::sentence' EXIT\n"  # as in node.sh


@pytest.mark.parametrize("path", sorted((CHECKOUT / "slurm").glob("p*/*.env")), ids=lambda path: path.name)
def test_every_table_of_the_project_can_be_read(rig: Rig, path: Path) -> None:
    done = rig.source("common/log common/verdict common/env_table", f'{SHOW}env_table::read "{path}"\ntrap - EXIT')

    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(("line", "message"), [("gpu=amd", "'gpu', which is not a setting"), ("devices", "has no '='")])
def test_a_typo_in_a_table_is_reported_with_file_and_line(rig: Rig, line: str, message: str) -> None:
    (rig.work / "site.env").write_text(f"# a comment\n\n{line}\n")

    done = rig.source("common/log common/verdict common/env_table", f'{SHOW}env_table::read "{rig.work}/site.env"')

    assert done.returncode == 64
    assert "site.env:3" in done.stdout
    assert message in done.stdout


def test_a_table_is_data_and_never_run(rig: Rig) -> None:
    (rig.work / "site.env").write_text('NCCL_DEBUG=$(touch hacked)\nNCCL_ALGO="a b"\n')

    done = rig.source(
        "common/log common/verdict common/env_table",
        f'env_table::read "{rig.work}/site.env"\nprintf "%s|%s" "$NCCL_DEBUG" "$NCCL_ALGO"',
    )

    assert done.stdout == "$(touch hacked)|a b"
    assert not (rig.work / "hacked").exists()


V1 = "sys/fs/cgroup/memory/a/memory.limit_in_bytes"


V2 = "sys/fs/cgroup/a/memory.max"


CGROUPS = {
    "version 2": ({"proc/self/cgroup": "0::/a/b\n", V2: "1000\n", "sys/fs/cgroup/a/b/memory.max": "max\n"}, "1000"),
    "version 1": ({"proc/self/cgroup": "3:memory:/a\n", V1: "77\n"}, "77"),
    "version 1 without a limit": ({"proc/self/cgroup": "3:memory:/a\n", V1: f"{2**63 - 4096}\n"}, ""),
    "none": ({"proc/self/cgroup": "0::/\n"}, ""),
}


@pytest.mark.parametrize(("files", "limit"), CGROUPS.values(), ids=CGROUPS)
def test_memory_is_the_cgroups_limit_if_slurm_does_not_account_for_it(
    rig: Rig, files: dict[str, str], limit: str
) -> None:
    node = {"proc/self/status": "Cpus_allowed_list:\t0-3,8\n", "proc/meminfo": "MemTotal: 2 kB\n"}
    for name, text in {**files, **node}.items():
        (rig.root / name).parent.mkdir(parents=True, exist_ok=True)
        (rig.root / name).write_text(text)

    shown = '"$CONTAINER_CPUSET" "$CONTAINER_MEMORY" "$VERLJOB_MEMORY_BYTES"'
    done = rig.source(
        "common/log common/verdict node/spec/resources", f'resources::collect "{rig.root}"\nprintf "%s|%s|%s" {shown}'
    )

    assert done.stdout == f"0-3,8|{limit}|{limit or 2048}"


@pytest.mark.parametrize(("cores", "silent"), [(100_000, 100), (0, 6)])
def test_a_missed_heartbeat_weighs_less_on_an_overloaded_node(rig: Rig, cores: int, silent: int) -> None:
    done = rig.source(
        "node/container", f"LEASE_CORES={cores} LEASE_SILENCE=0\ncontainer::_count_miss\nprintf '%s' \"$LEASE_SILENCE\""
    )

    assert done.stdout == str(silent)


def test_the_scripts_use_only_tools_of_compute_nodes() -> None:
    """The other tests run them on a PATH without these tools; this finds rare branches too."""
    absent = re.compile(r"(?<![\w./:-])(awk|sed|grep|python3?|jq|tar|ip|hostname|perl|xargs|find|pkill|eval)(?= )")
    named = [
        f"{path.name}: {line}"
        for path in [*(CHECKOUT / "slurm").glob("*.sh"), *(CHECKOUT / "slurm").glob("[lr]*/**/*.sh")]
        for line in path.read_text().splitlines()
        if absent.search(re.sub(r"#.*|\"[^\"]*\"|'[^']*'", "", line))
    ]

    # enroot itself needs jq.
    assert [line for line in named if not line.startswith("enroot_login.sh: ") or "$(jq " not in line] == []


@pytest.mark.parametrize("end", ["exit 0", "exit 7", "exit 127", "kill -KILL $BASHPID"])
@pytest.mark.parametrize("look", ["", ":"])
def test_await_returns_the_code_of_a_child_that_ends_at_any_moment(rig: Rig, end: str, look: str) -> None:
    loop = f"(sleep 0.1$n; {end}) & process::await $! 3 {look}; printf '%s ' \"$PROCESS_CODE\""

    done = rig.source("common/process", f"ENDING=''\nfor n in 0 1 2 3; do {loop}; done 2> /dev/null")

    code = {"k": "137"}.get(end[0], end.split()[1])
    assert done.stdout.split() == [code] * 4


TOGETHER = """one() {
    ENDING=''
    trap 'ENDING=$SECONDS; for i in {1..2000}; do :; done' TERM
    sleep 30 & other=$!
    sleep 30 & child=$!
    (sleep "0.$1"; kill -TERM "$BASHPID_OF_ONE" "$child") &
    process::await "$child" 5 "$2" || PROCESS_CODE=failed
    printf '%s ' "$PROCESS_CODE"
    kill "$other"
}
for n in {10..49}; do (BASHPID_OF_ONE=$BASHPID; one "$n" LOOK) & done 2> /dev/null
wait"""


@pytest.mark.parametrize("look", ["", ":"])
def test_await_returns_when_the_same_signal_ends_the_child(rig: Rig, look: str) -> None:
    """Slurm signals all processes of a step; bash loses some that end while it waits."""
    begin = time.monotonic()

    done = rig.source("common/process", TOGETHER.replace("LOOK", f"'{look}'"))

    assert done.stdout.split() == ["143"] * 40
    assert time.monotonic() - begin < 15


def test_await_fails_if_a_child_outlives_its_grace(rig: Rig) -> None:
    done = rig.source("common/process", "ENDING=$SECONDS\nsleep 60 & process::await $! 1 || printf 'failed'; kill $!")

    assert done.stdout == "failed"


@pytest.mark.parametrize("clock", ["", "EPOCHREALTIME=1700000000,123456"], ids=["its own", "in another locale"])
def test_the_clock_is_in_milliseconds(rig: Rig, clock: str) -> None:
    done = rig.source("common/process", f"unset EPOCHREALTIME\n{clock}\nprocess::now\nprintf '%s' \"$NOW_MS\"")

    assert done.stdout == "1700000000123" if clock else abs(int(done.stdout) / 1000 - time.time()) < 10


def test_the_accounts_own_group_comes_first(rig: Rig) -> None:
    done = rig.source("node/spec/devices", "devices::_read_groups\nprintf '%s\\n' \"${ACCOUNT_GIDS[@]}\"")

    gids = [int(gid) for gid in done.stdout.split()]
    assert gids[0] == os.getgid()
    assert set(gids) == {os.getgid(), *os.getgroups()}
