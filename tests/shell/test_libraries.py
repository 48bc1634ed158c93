"""slurm/lib: tables are data, devices go by identity, ports are held by locks between all users of a node."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.shell.rig import CHECKOUT, Rig

DEVICES = "say verdict table account devices"
PORTS = "say verdict ports"
SHOW = "trap '[[ -z ${VERDICT[code]:-} ]] || verdict::sentence' EXIT\n"  # what `fail` leaves to node.sh
UUIDS = ["GPU-aaaa", "GPU-bbbb", "GPU-cccc"]


def platform(name: str) -> str:
    return f'table::read "$VERLJOB_HOME/slurm/platforms/{name}.env"\n'


def collected(rig: Rig, name: str, root: Path, **slurm: str) -> subprocess.CompletedProcess[str]:
    script = f'{SHOW}{platform(name)}TABLE[devices]="" TABLE[devices_optional]=""\ndevices::collect "{root}"\n'
    script += 'trap - EXIT\nprintf \'%s\\n\' "${CONTAINER_GPUS[@]}" "${CONTAINER_DEVICES[@]}"'
    return rig.source(DEVICES, script, VERLJOB_PLATFORM=name, **slurm)


@pytest.fixture
def nvidia(rig: Rig) -> Path:
    """The driver's tree, in an order of PCI addresses that is not that of the minor numbers."""
    for minor, (address, uuid) in enumerate(zip(["0000:c1:00.0", "0000:01:00.0", "0000:41:00.0"], UUIDS)):
        folder = rig.root / "proc" / "driver" / "nvidia" / "gpus" / address
        folder.mkdir(parents=True)
        told = {
            "Model": "NVIDIA H200",
            "IRQ": "18",
            "GPU UUID": uuid,
            "Bus Location": address,
            "Device Minor": str(minor),
        }
        (folder / "information").write_text("".join(f"{key}: \t {value}\n" for key, value in told.items()))
    return rig.root


@pytest.fixture
def amd(rig: Rig) -> Path:
    """Render nodes 128 (the board's own graphics) and 129 to 131 (AMD)."""
    for minor, vendor in ((128, "0x1a03"), (129, "0x1002"), (130, "0x1002"), (131, "0x1002")):
        folder = rig.root / "sys" / "class" / "drm" / f"renderD{minor}" / "device"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
    return rig.root


def test_nvidia_cards_are_named_by_uuid(rig: Rig, nvidia: Path) -> None:
    done = collected(rig, "cuda", nvidia, SLURM_STEP_GPUS="0,2", SLURM_GPUS_ON_NODE="2")

    assert done.stdout.split() == [UUIDS[0], UUIDS[2]]


@pytest.mark.parametrize("ids", ["0,2", "129,131"], ids=["counted", "numbers of render nodes"])
def test_amd_cards_are_their_render_nodes(rig: Rig, amd: Path, ids: str) -> None:
    done = collected(rig, "rocm", amd, SLURM_STEP_GPUS=ids, SLURM_GPUS_ON_NODE="2")

    assert done.stdout.split() == ["/dev/dri/renderD129", "/dev/dri/renderD131"]


@pytest.mark.parametrize(("name", "gpu"), [("cuda", "5"), ("rocm", "5"), ("rocm", "128"), ("cpu", "0")])
def test_a_card_that_the_node_lacks_ends_with_69(rig: Rig, nvidia: Path, amd: Path, name: str, gpu: str) -> None:
    done = collected(rig, name, rig.root, SLURM_JOB_GPUS=gpu)

    assert done.returncode == 69
    assert f"GPU {gpu} of the job is not on n1" in done.stdout
    assert "--exclude=n1" in done.stdout


@pytest.mark.parametrize("ids", ["", "NoDevFiles"])
def test_gpus_that_slurm_counts_but_does_not_name_end_with_69(rig: Rig, ids: str) -> None:
    done = collected(rig, "cuda", rig.root, SLURM_STEP_GPUS=ids, SLURM_GPUS_ON_NODE="8")

    assert done.returncode == 69
    assert "gres.conf needs File=" in done.stdout


def test_without_gpus_there_are_no_devices(rig: Rig) -> None:
    assert collected(rig, "cpu", rig.root).stdout.split() == []


def test_an_optional_device_is_left_out_with_a_warning(rig: Rig) -> None:
    table = "TABLE[devices_optional]='/dev/null /dev/no-fabric'"

    done = rig.source(DEVICES, f"{table}\ndevices::collect\nprintf '%s\\n' \"${{CONTAINER_DEVICES[@]}}\"")

    assert done.stdout == "/dev/null\n"
    assert "warning: no /dev/no-fabric on n1" in done.stderr


def test_a_required_device_ends_with_69(rig: Rig) -> None:
    done = rig.source(DEVICES, f"{SHOW}TABLE[devices]=/dev/no-kfd\ndevices::collect", VERLJOB_PLATFORM="rocm")

    assert done.returncode == 69
    assert "/dev/no-kfd is not on n1" in done.stdout


def test_the_groups_are_the_accounts_and_those_of_the_devices(rig: Rig) -> None:
    tty = os.stat("/dev/tty").st_gid
    done = rig.source(DEVICES, "TABLE[devices]=/dev/tty\ndevices::collect\nprintf '%s\\n' \"${CONTAINER_GROUPS[@]}\"")

    assert set(map(int, done.stdout.split())) == {*os.getgroups(), tty} - {0, os.getgid()}


@pytest.mark.parametrize("path", sorted((CHECKOUT / "slurm").glob("p*/*.env")), ids=lambda path: path.name)
def test_every_table_of_the_project_can_be_read(rig: Rig, path: Path) -> None:
    done = rig.source("say verdict table", f'{SHOW}table::read "{path}"\ntrap - EXIT')

    assert (done.returncode, done.stdout) == (0, "")


def test_every_line_that_the_example_profile_offers_can_be_read(rig: Rig) -> None:
    text = (CHECKOUT / "slurm" / "profiles" / "example.env").read_text()
    profile = rig.work / "all.env"
    profile.write_text(re.sub(r"(?m)^#(?=[A-Za-z_]+=)", "", text))

    done = rig.source(
        "say verdict table",
        f'{SHOW}table::read "{profile}"\ntrap - EXIT\nprintf "%s %s" "$NCCL_IB_GID_INDEX" "${{TABLE[security]}}"',
    )

    assert done.stdout == "3 seccomp=unconfined"


@pytest.mark.parametrize(("line", "words"), [("gpu=amd", "'gpu', which is no setting"), ("devices", "has no '='")])
def test_a_typo_in_a_table_stops_with_file_and_line(rig: Rig, line: str, words: str) -> None:
    (rig.work / "site.env").write_text(f"# a comment\n\n{line}\n")

    done = rig.source("say verdict table", f'{SHOW}table::read "{rig.work}/site.env"')

    assert done.returncode == 64
    assert "site.env:3" in done.stdout
    assert words in done.stdout


def test_a_table_is_data_and_never_run(rig: Rig) -> None:
    (rig.work / "site.env").write_text('NCCL_DEBUG=$(touch hacked)\nNCCL_ALGO="a b"\n')

    done = rig.source(
        "say verdict table", f'table::read "{rig.work}/site.env"\nprintf "%s|%s" "$NCCL_DEBUG" "$NCCL_ALGO"'
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
def test_memory_is_the_cgroups_where_slurm_accounts_for_none(rig: Rig, files: dict[str, str], limit: str) -> None:
    node = {"proc/self/status": "Cpus_allowed_list:\t0-3,8\n", "proc/meminfo": "MemTotal: 2 kB\n"}
    for name, text in {**files, **node}.items():
        (rig.root / name).parent.mkdir(parents=True, exist_ok=True)
        (rig.root / name).write_text(text)

    shown = '"$CONTAINER_CPUSET" "$CONTAINER_MEMORY" "$VERLJOB_MEMORY_BYTES"'
    done = rig.source("say verdict share", f'share::collect "{rig.root}"\nprintf "%s|%s|%s" {shown}')

    assert done.stdout == f"0-3,8|{limit}|{limit or 2048}"


def reserve(rig: Rig, script: str, **more: str) -> subprocess.CompletedProcess[str]:
    settings = {"VERLJOB_PORT_RANGE": "20000-32767", "VERLJOB_PORTS": "512", **more}
    return rig.source(PORTS, f"{SHOW}ports::range\n{script}\ntrap - EXIT", **settings)


TAKE = 'ports::reserve "$PORTS_LOW" "$PORTS_HIGH" 512 0; echo "$PORTS_FIRST-$PORTS_LAST"'


def test_two_jobs_never_get_one_block(rig: Rig) -> None:
    both = reserve(rig, f'{TAKE}\n(exec 7<&-; bash -c "$AGAIN")', AGAIN=again())

    assert both.stdout.split() == ["20000-20511", "20512-21023"]


def again() -> str:
    """The same reservation by another process while the first holds its own; its user may not see this checkout."""
    lines = [(CHECKOUT / "slurm" / "lib" / f"{name}.sh").read_text() for name in PORTS.split()]
    return "\n".join(
        ["set -Eeuo pipefail", "HOST=n1 STAGE=checks ENDING=", *lines, SHOW, "ports::range", TAKE, "trap - EXIT"]
    )


def test_a_block_is_free_again_when_its_holder_is_gone(rig: Rig) -> None:
    assert [reserve(rig, TAKE).stdout for _ in range(2)] == ["20000-20511\n"] * 2


def test_a_block_is_given_back(rig: Rig) -> None:
    reserve(rig, f"{TAKE}\nports::release")

    assert [path.name for path in (rig.root / "ports").iterdir()] == ["guard"]


def test_a_block_with_a_listener_in_it_is_passed_over(rig: Rig) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        low = port - port % 8
        words = f'PORTS_LOW={low} PORTS_HIGH={low + 15}; ports::reserve {low} {low + 15} 8 0; echo "$PORTS_FIRST"'
        done = reserve(rig, words)

    assert done.stdout == f"{low + 8}\n"


def test_when_all_blocks_are_taken_it_says_so(rig: Rig) -> None:
    done = reserve(
        rig,
        'ports::reserve 20000 20511 512 0\n(exec 7<&-; bash -c "$AGAIN")',
        AGAIN=again().replace('"$PORTS_LOW" "$PORTS_HIGH"', "20000 20511"),
    )

    assert done.returncode == 69


def test_the_range_ends_below_the_ephemeral_ports(rig: Rig) -> None:
    live = rig.work / "range"
    live.write_text("25000\t60999\n")
    script = f'ports::range "{live}"; echo "$PORTS_LOW-$PORTS_HIGH"'

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
    second = reserve(rig, TAKE)  # the other's lock file is there, and nobody holds it

    assert first.stdout.split() == ["20000-20511", "20512-21023"], first.stderr
    assert second.stdout == "20000-20511\n"


def test_one_node_waits_for_the_turn_of_another(rig: Rig) -> None:
    """The second takes its turn when the first gives it; a turn that nobody gives is not waited for without end."""
    script = (
        'turns::take; first=$TURN; (sleep 1; rmdir -- "$first") & TURN=\'\'; turns::take; echo "${TURN##*/} $SECONDS"\n'
        "TURN=''; VERLJOB_PULL_TIMEOUT_S=1; turns::take; echo \"none: $TURN\""
    )
    done = rig.source("say turns", script, VERLJOB_PULLS="1", VERLJOB_RUN_DIR=str(rig.work))

    turn, seconds = done.stdout.splitlines()[0].split()
    assert (turn, done.stdout.splitlines()[1]) == ("1", "none: ")
    assert int(seconds) >= 1
    assert "no turn to pull after 1 s" in done.stderr


def test_the_scripts_use_nothing_that_compute_nodes_lack() -> None:
    """The other tests run them on a PATH without these; here no line names one that only a rare path would reach."""
    absent = re.compile(r"(?<![\w./:-])(awk|sed|grep|python3?|jq|tar|ip|hostname|perl|xargs|find|pkill|eval)(?= )")
    named = [
        f"{path.name}: {line}"
        for path in [*(CHECKOUT / "slurm").glob("*.sh"), *(CHECKOUT / "slurm").glob("[lr]*/*.sh")]
        for line in path.read_text().splitlines()
        if absent.search(re.sub(r"#.*|\"[^\"]*\"|'[^']*'", "", line))
    ]

    assert [line.partition(" ")[0] for line in named] == ["training.sh:"]  # printed, never run


@pytest.mark.parametrize("end", ["exit 0", "exit 7", "exit 127", "kill -KILL $BASHPID"])
@pytest.mark.parametrize("look", ["", ":"])
def test_await_tells_the_code_of_a_child_that_ends_at_any_moment(rig: Rig, end: str, look: str) -> None:
    each = f"(sleep 0.1$n; {end}) & process::await $! 3 {look}; printf '%s ' \"$PROCESS_CODE\""

    done = rig.source("process", f"ENDING=''\nfor n in 0 1 2 3; do {each}; done 2> /dev/null")

    code = {"k": "137"}.get(end[0], end.split()[1])
    assert done.stdout.split() == [code] * 4


def test_await_gives_up_a_child_that_outlives_its_grace(rig: Rig) -> None:
    done = rig.source("process", "ENDING=$SECONDS\nsleep 60 & process::await $! 1 || printf 'given up'; kill $!")

    assert done.stdout == "given up"


@pytest.mark.parametrize("clock", ["", "EPOCHREALTIME=1700000000,123456"], ids=["its own", "in another locale"])
def test_the_clock_counts_milliseconds(rig: Rig, clock: str) -> None:
    done = rig.source("process", f"unset EPOCHREALTIME\n{clock}\nprocess::now\nprintf '%s' \"$NOW_MS\"")

    assert done.stdout == "1700000000123" if clock else abs(int(done.stdout) / 1000 - time.time()) < 10


def test_the_accounts_own_group_comes_first(rig: Rig) -> None:
    done = rig.source("account", "account::gids\nprintf '%s\\n' \"${ACCOUNT_GIDS[@]}\"")

    gids = [int(gid) for gid in done.stdout.split()]
    assert gids[0] == os.getgid()
    assert set(gids) == {os.getgid(), *os.getgroups()}
