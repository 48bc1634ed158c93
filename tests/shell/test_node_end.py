"""node.sh: the end of the container is reported, and nothing of it remains."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.support.shell.container import STAYS, STAYS_DEAF, running, terminate
from tests.support.shell.rig import CHECKOUT, SECRET, Rig, leftovers
from tests.support.waiting import wait_for


def test_node_sh_writes_the_heads_verdict_and_exits_with_its_code(rig: Rig) -> None:
    rig.fake("container", rig.container("code=7", before="echo hello from training"))

    done = rig.node()

    assert done.returncode == 7
    assert rig.verdict() == {
        "code": "7",
        "origin": "self",
        "stage": "train",
        "host": "n1",
        "class": "unknown",  # of an image that writes none
        "cause": "as the test says",
        "fix": "",
    }
    assert "hello from training" in done.stdout
    assert "hello from training" in (rig.run_dir / "nodes" / "0-n1" / "node.log").read_text()
    assert leftovers(rig) == []


def test_a_worker_writes_output_to_its_log_and_the_verdict_to_stderr(rig: Rig) -> None:
    rig.fake("container", rig.container("code=0", before="echo hello from a worker"))

    done = rig.node(1)

    assert done.stdout == ""
    assert done.stderr.startswith("verljob-verdict\t1-n2\tcode=0\torigin=self\t")
    log = (rig.run_dir / "nodes" / "1-n2" / "node.log").read_text()
    assert "hello from a worker" in log
    assert log.endswith("verdict: 0 (train on n1): as the test says\n")


def test_a_worker_with_the_heads_verdict_exits_with_0(rig: Rig) -> None:
    rig.fake("container", rig.container("code=7").replace("exit 7", "exit 0"))

    done = rig.node(1)

    assert done.returncode == 0
    assert "code=7" in done.stderr


def test_only_own_containers_of_unknown_jobs_are_removed(rig: Rig) -> None:
    ours, theirs = f"verljob-{os.getuid()}", f"verljob-{os.getuid() + 1}"
    rig.fake("jobs", "18\tRUNNING\n20\tRUNNING\n")
    rig.fake("containers", f"{ours}-17-1-0\t17\n{ours}-18-1-0\t18\n{theirs}-16-1-0\t16\nby-hand\t15\n")

    rig.node()

    assert removed(rig) == [f"{ours}-17-1-0"]


def test_no_container_is_removed_while_slurm_does_not_answer(rig: Rig) -> None:
    rig.fake("controller-down", "")
    rig.fake("containers", f"verljob-{os.getuid()}-17-1-0\t17\n")

    rig.node()

    assert removed(rig) == []


def removed(rig: Rig) -> list[str]:
    """The removed containers, except this job's."""
    calls = [call.splitlines() for call in rig.faked("docker.argv").split("\n\n")]
    own = f"verljob-{os.getuid()}-20-1-0"
    return [call[-1] for call in calls if call[:1] == ["rm"] and call[-1] != own]


def test_rays_logs_are_saved_masked_and_bounded(rig: Rig) -> None:
    logs = 'mkdir -p "$FOLDER/tmp/ray/session_1/logs"; cd "$FOLDER/tmp/ray/session_1/logs"; '
    looks_like_one = f"hf_{'x' * 34} http://jo:pw@proxy:3128"
    logs += f"printf 'token {'f' * 64} and {SECRET} {looks_like_one}\\n' > gcs.log; : > empty.log; "
    logs += "printf '%2000000d' 1 > worker.out"
    rig.fake("container", rig.container("code=0", before=logs))

    rig.node(HF_TOKEN=SECRET)

    kept = rig.run_dir / "nodes" / "0-n1" / "ray"
    assert sorted(path.name for path in kept.iterdir()) == ["gcs.log", "worker.out"]
    assert (kept / "gcs.log").read_text() == "token *** and *** *** http://***@proxy:3128\n"
    assert (kept / "worker.out").stat().st_size == 1024 * 1024


def test_term_to_the_container_only_is_reported_as_ended_from_outside(rig: Rig) -> None:
    """launch.sh may know by whom; node.sh does not report it as a signal of Slurm."""
    rig.fake("container", rig.container("code=143").replace("origin=self", "origin=signal"))

    assert rig.node().returncode == 76
    assert (rig.verdict()["origin"], rig.verdict()["code"]) == ("outside", "76")
    assert "was ended from outside" in rig.verdict()["cause"]


def test_code_125_after_a_heartbeat_is_not_a_failed_start(rig: Rig) -> None:
    rig.fake("container", 'for _ in 1 2 3 4; do printf . > "$FOLDER/out/pulse"; sleep 0.5; done; exit 125')

    assert rig.node().returncode == 76
    assert (rig.verdict()["origin"], "was ended from outside" in rig.verdict()["cause"]) == ("outside", True)


PULSE = 'printf . > "$FOLDER/out/pulse"'


def test_a_container_without_heartbeats_is_killed_after_the_stall_timeout(rig: Rig) -> None:
    rig.fake("container", f"for _ in 1 2 3; do {PULSE}; sleep 0.5; done\n{STAYS}")
    began = time.monotonic()

    assert rig.node().returncode == 76
    assert time.monotonic() - began > 8
    assert "sent no heartbeat for 8 s" in rig.verdict()["cause"]
    assert leftovers(rig) == []


def test_a_container_that_pauses_its_heartbeat_briefly_continues(rig: Rig) -> None:
    silent = f"{PULSE}; sleep 1.5; {PULSE}; sleep 6; {PULSE}"
    rig.fake("container", rig.container("code=0", before=silent))

    assert rig.node().returncode == 0


@pytest.mark.parametrize("node_id", [0, 1])
def test_node_sh_has_no_open_file_in_the_run_directory(rig: Rig, node_id: int) -> None:
    with running(rig, SLURM_NODEID=str(node_id), SLURMD_NODENAME=f"n{node_id + 1}") as node:
        held = [os.readlink(link) for link in Path(f"/proc/{node.pid}/fd").iterdir()]
        terminate(node)

    assert [file for file in held if file.startswith(str(rig.run_dir))] == []


@pytest.mark.parametrize("stall", ["<unset>", "", "a[$(touch ran)]"])
def test_a_stall_timeout_that_is_not_a_number_is_refused(rig: Rig, stall: str) -> None:
    assert rig.node(VERLJOB_STALL_S=stall).returncode == 64
    assert "VERLJOB_STALL_S" in rig.verdict()["cause"]
    assert not (rig.work / "ran").exists()


def test_await_does_not_search_sleep_in_path(rig: Rig) -> None:
    """A search in PATH accesses the working folder, whose file server may hang. `hash` prints the remembered path."""
    script = """check() { hash -t sleep > "$FAKE/remembered"; return 1; }
(exec sleep 3) & process::await $! 5 check || :"""

    assert rig.source("common/log common/verdict common/process", script).returncode == 0
    assert rig.faked("remembered").strip().endswith("/bin/sleep")


def test_await_clears_the_code_of_an_earlier_child(rig: Rig) -> None:
    script = '''true & process::await $! 5
check() { return 1; }
(exec sleep 3) & process::await $! 5 check || printf '<%s>' "$PROCESS_CODE"'''

    assert rig.source("common/log common/verdict common/process", script).stdout == "<>"


def test_a_clock_that_is_set_back_does_not_stop_the_checks(rig: Rig) -> None:
    """SECONDS follows the clock: an assignment simulates a clock that is set back by an hour."""
    script = """sleep 6 & checks=0
check() { checks=$((checks + 1)); ((checks != 2)) || SECONDS=$((SECONDS - 3600)); }
process::await $! 5 check
((checks >= 4)) || exit 1"""

    assert rig.source("common/log common/verdict common/process", script).returncode == 0


@pytest.mark.parametrize(("oom", "message"), [(False, "was killed"), (True, "more than the job's 4294967296 bytes")])
def test_a_killed_container_is_reported_with_its_cause(rig: Rig, oom: bool, message: str) -> None:
    rig.fake("container", "exit 137")
    if oom:
        rig.fake("oom", "")

    assert rig.node().returncode == 76
    assert message in rig.verdict()["cause"]


def test_a_signal_that_ends_the_client_first_is_not_reported_as_a_failed_engine(rig: Rig) -> None:
    client = rig.root / "bin" / "docker"
    client.unlink()
    client.write_text('#!/bin/bash\necho yes > "$FAKE/called"\nkill -TERM $$\n')
    client.chmod(0o755)

    with rig.start_node() as node:
        wait_for(rig.root / "fake" / "called")
        terminate(node)

    assert node.returncode == 143
    assert rig.verdict()["code"] == "143"


@pytest.mark.parametrize("command", ["kill", "rm", "container inspect"])
def test_a_client_that_cannot_be_killed_does_not_delay_the_end(rig: Rig, command: str) -> None:
    """Such a client waits for a disk: simulated by a process that holds the client's output open."""
    client = rig.root / "bin" / "docker"
    real = client.resolve()
    client.unlink()
    stays = f"{shutil.which('setsid')} sleep 30 &"
    client.write_text(f'#!/bin/bash\nif [[ "$* " == \'{command} \'* ]]; then {stays} fi\nexec {real} "$@"\n')
    client.chmod(0o755)
    with running(rig) as node:
        began = time.monotonic()
        node.send_signal(signal.SIGTERM)
        node.wait(15)

    assert time.monotonic() - began < 15
    assert node.returncode == 143
    assert leftovers(rig) == []


@pytest.mark.parametrize("container", [STAYS, STAYS_DEAF], ids=["that obeys", "deaf to TERM"])
def test_term_ends_everything_within_five_seconds(rig: Rig, container: str) -> None:
    with running(rig, container) as node:
        began = time.monotonic()
        terminate(node)

    assert time.monotonic() - began < 5
    assert node.returncode == 143
    assert rig.verdict()["origin"] == "signal"
    assert leftovers(rig) == []


def test_the_lease_ends_with_node_sh_while_its_client_still_runs(rig: Rig) -> None:
    """A child that held the FIFO open for writing would keep the lease alive."""
    container = 'echo $$ > "$FAKE/container.pid"; read -r _ < "$FOLDER/lease"; echo gone > "$FAKE/lease-gone"\n'
    with running(rig, container) as node:
        assert not (rig.root / "fake" / "lease-gone").exists()
        node.kill()
        began = time.monotonic()
        wait_for(rig.root / "fake" / "lease-gone")

    assert time.monotonic() - began < 2


def test_the_next_node_sh_of_the_account_removes_a_stale_folder(rig: Rig) -> None:
    stale = rig.root / "local" / f"verljob-{os.getuid()}-19-1-0"
    stale.mkdir()
    (stale / "file").write_text("")
    rig.fake("controller-down", "")  # it is removed for its folder's sake, and not since its job is over
    rig.fake("containers", f"{stale.name}\t19\n")
    foreign = rig.root / "local" / f"verljob-{os.getuid() + 1}-19-1-0"
    foreign.mkdir()

    rig.node()

    assert not stale.exists()
    assert foreign.exists()
    assert ["rm", "--force", stale.name] in [call.splitlines() for call in rig.faked("docker.argv").split("\n\n")]


def test_a_sweep_saves_the_logs_of_the_killed_node_and_removes_its_folder(rig: Rig) -> None:
    folder = rig.root / "local" / f"verljob-{os.getuid()}-20-1-1"
    logs = folder / "tmp" / "ray" / "session_1" / "logs"
    logs.mkdir(parents=True)
    (logs / "raylet.out").write_text(f"{'f' * 64}\n")
    (folder / "token").write_text("f" * 64)

    environment = rig.step_environment(0, SLURMD_NODENAME="n2")  # the sweep's own step has one node, number 0
    done = rig.run("bash", str(CHECKOUT / "slurm" / "node.sh"), "sweep", **environment)

    assert done.returncode == 0, done.stderr
    assert (rig.run_dir / "nodes" / "1-n2" / "ray" / "raylet.out").read_text() == "***\n"
    assert leftovers(rig) == []


def test_two_launches_of_one_job_do_not_share_a_node(rig: Rig) -> None:
    with running(rig) as node:
        second = rig.node()
        terminate(node)

    assert second.returncode == 64
    assert "already has a launch running" in second.stdout + second.stderr
