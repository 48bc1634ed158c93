"""slurm/runtimes/podman.sh: rootless for an account, limited for root, and nothing of it remains."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.shell.container import running, terminate, values
from tests.support.shell.processes import lives
from tests.support.shell.rig import CHECKOUT, Rig, leftovers


def as_account(rig: Rig, **more: str) -> subprocess.CompletedProcess[str]:
    """Run node.sh as an account that is not root."""
    become = [str(shutil.which("unshare")), "--user", "--map-user=2001", "--map-group=2001"]
    return rig.run(*become, "bash", str(CHECKOUT / "slurm" / "node.sh"), **rig.step_environment(0, **more))


def test_podman_keeps_the_accounts_user_groups_and_cgroup(rig: Rig) -> None:
    done = as_account(rig, VERLJOB_RUNTIME="podman")

    assert done.returncode == 0, done.stdout + done.stderr
    argv = rig.docker_run()
    assert values(argv, "--user") == ["0:0"]  # which is the account itself outside
    assert "--userns" not in argv
    assert values(argv, "--group-add") == ["keep-groups"]
    assert values(argv, "--cgroups") == ["disabled"]
    assert values(argv, "--ulimit") == ["host"]
    assert not {"--memory", "--cpuset-cpus", "--pids-limit"} & set(argv)
    assert argv[-2:] == ["1234", "node"]
    assert "does not limit, beyond what Slurm does: CPUs, memory," in done.stdout
    assert leftovers(rig) == []


def test_podman_removes_masks_that_the_image_sets(rig: Rig) -> None:
    as_account(rig, VERLJOB_RUNTIME="podman", CUDA_VISIBLE_DEVICES="0")

    assert "CUDA_VISIBLE_DEVICES" in values(rig.docker_run(), "--unsetenv")


def test_podman_as_root_has_the_limits_of_docker(rig: Rig) -> None:
    become = [str(shutil.which("unshare")), "--user", "--map-root-user"]
    rig.run(*become, "bash", str(CHECKOUT / "slurm" / "node.sh"), **rig.step_environment(VERLJOB_RUNTIME="podman"))

    argv = rig.docker_run()
    assert values(argv, "--memory") == [str(4096 * 1024 * 1024)]
    assert values(argv, "--ulimit") == ["core=0", "nofile=16384"]
    assert "--cgroups" not in argv


def test_podman_that_does_not_work_exits_with_69_and_its_error(rig: Rig) -> None:
    rig.fake("down", "")

    assert as_account(rig, VERLJOB_RUNTIME="podman").returncode == 69
    assert "cannot set up namespace using newuidmap" in rig.verdict()["cause"]


def test_podman_on_a_network_file_system_exits_with_69(rig: Rig) -> None:
    stat = rig.root / "bin" / "stat"
    stat.unlink()
    stat.write_text('#!/bin/bash\n[[ $1 == --file-system ]] && echo nfs || exec /usr/bin/stat "$@"\n')
    stat.chmod(0o755)

    assert as_account(rig, VERLJOB_RUNTIME="podman").returncode == 69
    assert "rootless_storage_path" in rig.verdict()["fix"]


def conmon(name: str, pidfile: str, does: str) -> str:
    """The process by which podman watches a container."""
    return f"(exec -a /usr/bin/conmon bash -c '{does}' conmon -p \"{pidfile}\" -n {name}) > /dev/null 2>&1 &"


def test_a_container_that_does_not_end_is_killed_without_podman(rig: Rig) -> None:
    """podman would wait ten seconds for it."""
    deaf = "bash -c 'trap \"\" TERM; while :; do sleep 0.1; done' > /dev/null 2>&1 &"
    watches = 'while [[ -n $(tr -d "\\0" < /proc/$(< $FAKE/container.pid)/cmdline) ]]; do sleep 0.1; done; '
    watches += "rm $FAKE/container.pid"
    watcher = conmon(f"verljob-{os.getuid()}-20-1-0", "$FAKE/container.pid", watches)
    with running(rig, f'{deaf}\necho $! > "$FAKE/container.pid"\n{watcher}\nwait', VERLJOB_RUNTIME="podman") as node:
        terminate(node)

    assert node.returncode == 143
    assert "could not be removed" not in (rig.run_dir / "nodes" / "0-n1" / "node.log").read_text()
    assert leftovers(rig) == []


def test_podmans_own_cleanup_is_waited_for(rig: Rig) -> None:
    """It would start the pause process again."""
    with subprocess.Popen(["sleep", "60"]) as pause:
        folder = rig.root / "fake" / "run" / "libpod" / "tmp"
        folder.mkdir(parents=True)
        (folder / "pause.pid").write_text(f"{pause.pid}")
        alive = f"[[ -n $(tr -d '\\0' < /proc/{pause.pid}/cmdline) ]]"
        rig.fake("tidies", f'sleep 1.9; {alive} && : > "$FAKE/before"')
        tidies = 'bash "$FAKE/tidies" podman container cleanup 0123'
        rig.fake("container", rig.container("code=0", before=f"{tidies} > /dev/null 2>&1 &"))

        as_account(rig, VERLJOB_RUNTIME="podman")

        assert (rig.root / "fake" / "before").exists()
        assert not lives(pause.pid)
        pause.kill()


@pytest.mark.parametrize("others", [False, True], ids=["alone", "with others running"])
@pytest.mark.parametrize("image", ["verl.cpu:latest", "absent"], ids=["after a container", "without one"])
def test_the_pause_process_is_killed_with_the_last_container(rig: Rig, others: bool, image: str) -> None:
    other = ["/usr/bin/conmon", "-c", "sleep 60; :", "conmon", "-n", "verljob-2001-19-1-0"]
    with (
        subprocess.Popen(["sleep", "60"]) as pause,
        subprocess.Popen(other if others else ["true"], executable="bash" if others else None) as watcher,
    ):
        folder = rig.root / "fake" / "run" / "libpod" / "tmp"
        folder.mkdir(parents=True)
        (folder / "pause.pid").write_text(f"{pause.pid}")

        as_account(rig, VERLJOB_RUNTIME="podman", VERLJOB_IMAGE=image)

        assert lives(pause.pid) == others
        pause.kill()
        watcher.kill()


def test_stale_mount_points_of_crun_are_removed(rig: Rig) -> None:
    empty, full = (Path(f"/tmp/crun.{os.getpid() % 10**5:05}{kind}") for kind in "ef")  # noqa: S108  crun knows no other
    empty.touch(mode=0)
    full.write_text("another's")
    try:
        as_account(rig, VERLJOB_RUNTIME="podman")

        assert (empty.exists(), full.exists()) == (False, True)
    finally:
        empty.unlink(missing_ok=True)
        full.unlink()


def test_a_stopped_pull_and_an_older_one_leave_nothing(rig: Rig) -> None:
    """A podman that is killed leaves the layers that it has pulled."""
    scratch = rig.root / "scratch"
    old, young = scratch / "verljob-pull.old", scratch / "verljob-pull.young"
    for folder in (old, young):
        folder.mkdir(parents=True)
        (folder / "blob").touch()
    os.utime(old, (0, 0))
    blob = ': > "$TMPDIR/blob"; echo "$TMPDIR" > "$FAKE/pulls"; echo $$ > "$FAKE/container.pid"'
    rig.fake(
        "pull", f'{blob}\ntrap "" TERM\nfor ((n = 0; n < 20; n++)); do : > "$TMPDIR/$n" || exit 1; sleep 0.02; done'
    )
    settings = {"VERLJOB_RUNTIME": "podman", "VERLJOB_IMAGE": "registry:5000/verl.cpu:1", "TMPDIR": str(scratch)}
    with running(rig, **settings) as node:
        terminate(node)

    assert node.returncode == 143
    assert rig.faked("pulls").startswith(f"{scratch}/verljob-pull.")
    assert list(scratch.iterdir()) == [young]


def test_a_pull_uses_the_runtime_folder_of_the_other_commands(rig: Rig) -> None:
    """Otherwise podman 5 makes one in the temporary TMPDIR, and leaves a pause process that holds it."""
    rig.fake("pull", 'echo "$XDG_RUNTIME_DIR" > "$FAKE/runtime"; exec docker pull')

    rig.node(VERLJOB_RUNTIME="podman", VERLJOB_IMAGE="registry:5000/verl.cpu:1")

    assert rig.faked("runtime") == f"{rig.root}/fake/run\n"
