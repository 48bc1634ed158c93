"""slurm/runtimes: each is one file behind one seam; bare leaves no process behind, whoever was killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shell.rig import CHECKOUT, SECRET, Rig, left
from tests.shell.test_node import STAYS, STAYS_DEAF, values, wait_for

RUNTIMES = sorted(path.stem for path in (CHECKOUT / "slurm" / "runtimes").glob("*.sh"))

PRETEND = """\
runtime::available() { :; }
runtime::find() { IMAGE_ID=sha256:pretended; }
runtime::start_argv() { RUNTIME_ARGV=(env "FOLDER=$LOCAL" bash "$FAKE/container"); }
runtime::exec_argv() { RUNTIME_ARGV=("${@:2}"); }
runtime::unlimited() { printf 'memory\\n'; }
"""
# Each task of the step is a node.sh.
STEP = """\
for id in 0 1; do
    export SLURM_NODEID=$id SLURMD_NODENAME=n$((id + 1)) SLURM_CPUS_PER_TASK=16 SLURM_NNODES=2
    bash "$VERLJOB_HOME/slurm/node.sh" &
done
wait
"""
TMP = "/tmp"  # noqa: S108  short enough for the paths of sockets, which pytest's own folder is not
# An interpreter whose verl_node is the test's container.
PYTHON = """\
#!/bin/bash
case "$1 $2" in
    '-c import sysconfig'*) echo "${0%/bin/python3}/lib/python3.12/site-packages" ;;
    '-c '*) ;;
    '-m verl_node')
        env > "$FAKE/run.env"
        printf '%s\\n' "$PWD" > "$FAKE/cwd"
        FOLDER=${VERLJOB_OUT%/out} exec bash "$FAKE/container"
        ;;
esac
"""


@pytest.fixture
def seam(rig: Rig) -> Path:
    """A checkout with one more file in slurm/runtimes, and no other change."""
    copy = rig.root / "checkout"
    shutil.copytree(CHECKOUT / "slurm", copy / "slurm", ignore=shutil.ignore_patterns("testbed", "*.py"))
    (copy / "slurm" / "runtimes" / "pretend.sh").write_text(PRETEND)
    return copy


def test_a_runtime_is_one_file_and_a_job_runs_with_it(rig: Rig, seam: Path) -> None:
    rig.fake("step", STEP)
    rig.fake("container", rig.container("code=7"))

    done = rig.launch("cluster", script=seam / "slurm" / "launch.sh", VERLJOB_HOME=str(seam), VERLJOB_RUNTIME="pretend")

    assert done.returncode == 7, done.stdout + done.stderr
    assert "n1: image verl.cpu:latest is sha256:pretended" in done.stdout
    assert "n1: the runtime pretend does not limit, beyond what Slurm does: memory" in done.stdout
    assert "\nverdict: 7 (train on n1)" in done.stdout  # the last line where srun waits for its tasks' output
    assert left(rig) == []


@pytest.mark.parametrize("container", [STAYS, STAYS_DEAF], ids=["that obeys", "deaf to TERM"])
def test_what_a_runtime_does_not_answer_is_answered_for_a_child_of_node_sh(
    rig: Rig, seam: Path, container: str
) -> None:
    rig.fake("container", container)
    environment = rig.of_the_step(VERLJOB_HOME=str(seam), VERLJOB_RUNTIME="pretend")
    with subprocess.Popen(["bash", seam / "slurm" / "node.sh"], env=environment, stdout=subprocess.PIPE) as node:
        wait_for(rig.root / "fake" / "container.pid")
        node.send_signal(signal.SIGTERM)
        node.communicate(timeout=10)

    assert node.returncode == 143
    assert not lives(int(rig.faked("container.pid")))
    assert left(rig) == []


def test_a_runtime_that_takes_neither_path_nor_reference_says_so(rig: Rig, seam: Path) -> None:
    done = rig.node(VERLJOB_HOME=str(seam), VERLJOB_RUNTIME="pretend", VERLJOB_IMAGE=str(rig.work))

    assert done.returncode == 66
    assert "the runtime pretend takes no path" in rig.verdict()["cause"]


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_runtime_never_reads_slurm(name: str) -> None:
    files = [CHECKOUT / "slurm" / "runtimes" / f"{name}.sh", *(CHECKOUT / "slurm" / "lib").glob("oci*.sh")]

    assert [line for file in files for line in file.read_text().splitlines() if re.search(r"\bSLURM", line)] == []


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_runtime_file_is_small(name: str) -> None:
    assert len((CHECKOUT / "slurm" / "runtimes" / f"{name}.sh").read_text().splitlines()) <= 100


@pytest.mark.parametrize(
    ("name", "words"),
    [("docker", "\ndocker run --rm "), ("podman", "\npodman run --rm "), ("bare", "/entrypoints/entrypoint.sh node\n")],
)
def test_a_dry_run_prints_what_each_would_start(rig: Rig, name: str, words: str) -> None:
    done = rig.launch(
        "cluster", VERLJOB_DRY_RUN="1", SLURM_JOB_ID="<unset>", VERLJOB_RUNTIME=name, VERLJOB_HOME=str(CHECKOUT),
        VERLJOB_PLATFORM="cpu", VERLJOB_IMAGE="/shared/verl", HF_TOKEN=SECRET,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.count(words) == 2
    assert SECRET not in done.stdout
    assert left(rig) == []


# --- podman ---------------------------------------------------------------------------------------------------------


def as_account(rig: Rig, **more: str) -> subprocess.CompletedProcess[str]:
    """node.sh as an account that is not root, whoever runs the test."""
    become = [str(shutil.which("unshare")), "--user", "--map-user=2001", "--map-group=2001"]
    return rig.run(*become, "bash", str(CHECKOUT / "slurm" / "node.sh"), **rig.of_the_step(0, **more))


def test_podman_keeps_an_accounts_files_groups_and_cgroup(rig: Rig) -> None:
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
    assert left(rig) == []


def test_podman_removes_masks_that_the_image_sets(rig: Rig) -> None:
    as_account(rig, VERLJOB_RUNTIME="podman", CUDA_VISIBLE_DEVICES="0")

    assert "CUDA_VISIBLE_DEVICES" in values(rig.docker_run(), "--unsetenv")


def test_podman_as_root_limits_what_docker_does(rig: Rig) -> None:
    become = [str(shutil.which("unshare")), "--user", "--map-root-user"]
    rig.run(*become, "bash", str(CHECKOUT / "slurm" / "node.sh"), **rig.of_the_step(VERLJOB_RUNTIME="podman"))

    argv = rig.docker_run()
    assert values(argv, "--memory") == [str(4096 * 1024 * 1024)]
    assert values(argv, "--ulimit") == ["nofile=16384"]
    assert "--cgroups" not in argv


def test_podman_that_does_not_work_ends_with_69_and_its_words(rig: Rig) -> None:
    rig.fake("down", "")

    assert as_account(rig, VERLJOB_RUNTIME="podman").returncode == 69
    assert "cannot set up namespace using newuidmap" in rig.verdict()["cause"]


def test_podman_on_a_network_file_system_ends_with_69(rig: Rig) -> None:
    stat = rig.root / "bin" / "stat"
    stat.unlink()
    stat.write_text('#!/bin/bash\n[[ $1 == --file-system ]] && echo nfs || exec /usr/bin/stat "$@"\n')
    stat.chmod(0o755)

    assert as_account(rig, VERLJOB_RUNTIME="podman").returncode == 69
    assert "rootless_storage_path" in rig.verdict()["fix"]


@pytest.mark.parametrize("others", [False, True], ids=["alone", "with others running"])
@pytest.mark.parametrize("image", ["verl.cpu:latest", "absent"], ids=["after a container", "without one"])
def test_the_process_that_podman_leaves_is_ended_with_the_last_container(rig: Rig, others: bool, image: str) -> None:
    with subprocess.Popen(["sleep", "60"]) as pause:
        folder = rig.root / "fake" / "run" / "libpod" / "tmp"
        folder.mkdir(parents=True)
        (folder / "pause.pid").write_text(f"{pause.pid}")
        if others:
            rig.fake("others", "")

        as_account(rig, VERLJOB_RUNTIME="podman", VERLJOB_IMAGE=image)

        assert lives(pause.pid) == others
        pause.kill()


# --- bare -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def bare(rig: Rig) -> Iterator[Rig]:
    """An environment of the site's, and a short folder for the job's own."""
    site = rig.root / "verl" / "lib" / "python3.12" / "site-packages"
    (site / "ray-2.60.0.dist-info").mkdir(parents=True)
    python = rig.root / "verl" / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(PYTHON)
    python.chmod(0o755)
    (rig.root / "bin" / "setsid").symlink_to(str(shutil.which("setsid")))
    with tempfile.TemporaryDirectory(prefix="b-", dir=TMP) as local:
        rig.environment.update(VERLJOB_LOCAL=local, VERLJOB_RUNTIME="bare", VERLJOB_IMAGE=str(rig.root / "verl"))
        yield rig
        assert os.listdir(local) == []


def node(bare: Rig, **more: str) -> subprocess.CompletedProcess[str]:
    chosen = {name: bare.environment[name] for name in ("VERLJOB_RUNTIME", "VERLJOB_IMAGE")}
    return bare.node(0, **{**chosen, **more})


def test_bare_runs_the_checkouts_entrypoint_in_the_environment(bare: Rig) -> None:
    bare.fake("container", bare.container("code=7"))

    done = node(bare, HF_TOKEN=SECRET, SLURM_JOB_PARTITION="main", PYTHONPATH="/mine", PATH_TO_DATA="/data")

    assert done.returncode == 7, done.stdout + done.stderr
    seen = dict(line.split("=", 1) for line in bare.faked("run.env").splitlines() if "=" in line)
    folder = f"{bare.environment['VERLJOB_LOCAL']}/verljob-{os.getuid()}-20-1-0"
    assert seen["PATH"].startswith(f"{bare.root}/verl/bin:")
    assert seen["PYTHONPATH"] == f"{CHECKOUT}/entrypoints"
    assert (seen["VERLJOB_LEASE"], seen["VERLJOB_TOKEN_FILE"]) == (f"{folder}/lease", f"{folder}/token")
    assert seen["TMPDIR"] == seen["VERLJOB_RAY_TEMP_DIR"] == folder + TMP
    assert seen["RAY_AUTH_TOKEN_PATH"] == f"{folder}/token"
    assert (seen["SLURM_NODEID"], seen["PATH_TO_DATA"]) == ("0", "/data")
    assert {"VERLJOB_RUN_DIR", "VERLJOB_HEAD_NODE", "VERLJOB_PORT_BLOCK"} < set(seen)
    assert not {"SLURM_JOB_PARTITION", "VERLJOB_TOKEN", "VERLJOB_DRY_RUN"} & set(seen)
    assert seen["HF_TOKEN"] == SECRET  # out of its file: entrypoint.sh exports it
    assert bare.faked("cwd").strip() == str(bare.work)


def test_bare_keeps_the_mask_since_every_device_is_seen(bare: Rig) -> None:
    node(bare, CUDA_VISIBLE_DEVICES="2,3")

    assert "CUDA_VISIBLE_DEVICES=2,3\n" in bare.faked("run.env")


def test_bare_says_in_one_line_what_it_cannot_limit(bare: Rig) -> None:
    said = [line for line in node(bare).stdout.splitlines() if "does not limit" in line]

    assert len(said) == 1
    assert all(word in said[0] for word in ("devices", "CPUs", "memory", "processes", TMP))


def test_environments_with_other_packages_have_other_digests(bare: Rig) -> None:
    node(bare)
    first = bare.faked("run.env")
    (bare.root / "verl" / "lib" / "python3.12" / "site-packages" / "verl-0.9.1.dist-info").mkdir()
    node(bare)

    digests = [re.findall(r"^VERLJOB_IMAGE_DIGEST=(sha256:[0-9a-f]{64})$", text, re.MULTILINE)[0] for text in (
        first, bare.faked("run.env")
    )]  # fmt: skip
    assert digests[0] != digests[1]


def test_what_is_no_environment_is_refused(bare: Rig) -> None:
    assert node(bare, VERLJOB_IMAGE="/no/such").returncode == 66
    assert node(bare, VERLJOB_IMAGE="verl.cpu:latest").returncode == 66
    assert "folder of a Python environment" in bare.verdict()["cause"]
    assert node(bare, VERLJOB_IMAGE=str(bare.work)).returncode == 66
    assert "no bin/python3" in bare.verdict()["cause"]

    (bare.root / "verl" / "lib" / "python3.12" / "site-packages" / "ray-2.60.0.dist-info").rmdir()
    assert node(bare).returncode == 64
    assert "Ray is not installed in it" in bare.verdict()["cause"]


def test_what_bare_cannot_show_is_refused(bare: Rig) -> None:
    assert node(bare, VERLJOB_MOUNTS=f"{bare.work}:/elsewhere").returncode == 64
    assert "/elsewhere" in bare.verdict()["cause"]


def test_a_folder_too_long_for_sockets_is_refused(bare: Rig) -> None:
    assert node(bare, VERLJOB_LOCAL=str(bare.root / "local")).returncode == 64
    assert "VERLJOB_LOCAL" in bare.verdict()["fix"]


LOST = 'env -i "$(command -v sleep)" 300'
STRAYS = {
    "that keeps its environment": "setsid bash -c 'echo $$ > $FAKE/stray; exec sleep 300' > /dev/null",
    "that lost its environment and holds a log open": (
        f"setsid bash -c 'echo $$ > $FAKE/stray; exec {LOST}' > \"$TMPDIR/log\""
    ),
    "whose parent belongs": f"setsid bash -c 'setsid {LOST} & echo $! > $FAKE/stray; wait' > /dev/null",
}
WRITTEN = "until [[ -s $FAKE/stray ]]; do sleep 0.05; done"


@pytest.mark.parametrize("stray", STRAYS.values(), ids=STRAYS)
def test_processes_of_a_killed_supervisor_are_killed_by_node_sh(bare: Rig, stray: str) -> None:
    bare.fake("container", f"{stray} &\n{WRITTEN}; kill -KILL $$")

    with subprocess.Popen(["sleep", "300"]) as mine:
        done = node(bare)
        assert lives(mine.pid)
        mine.kill()

    assert done.returncode == 76
    assert not lives(int(bare.faked("stray")))


def test_processes_of_a_killed_node_sh_are_killed_by_the_sweep(bare: Rig) -> None:
    bare.fake(
        "container", 'exec 4<&-; setsid sleep 300 & echo $! > "$FAKE/stray"; echo $$ > "$FAKE/container.pid"; wait'
    )
    environment = bare.of_the_step(0, **{name: bare.environment[name] for name in ("VERLJOB_RUNTIME", "VERLJOB_IMAGE")})
    with subprocess.Popen(
        ["bash", CHECKOUT / "slurm" / "node.sh"], env=environment, stdout=subprocess.DEVNULL
    ) as killed:
        wait_for(bare.root / "fake" / "container.pid")
        killed.kill()

    done = bare.run("bash", str(CHECKOUT / "slurm" / "node.sh"), "sweep", **environment)

    assert done.returncode == 0, done.stderr
    assert not lives(int(bare.faked("stray")))
    assert not lives(int(bare.faked("container.pid")))


def lives(pid: int) -> bool:
    """Whether a process is there and no zombie; one that was just killed may take a moment."""
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return False
        if state == "Z":
            return False
        time.sleep(0.1)
    return True
