"""slurm/runtimes/bare.sh: an environment instead of a container; no process remains after any kill."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.shell.container import running
from tests.support.shell.processes import lives
from tests.support.shell.rig import CHECKOUT, SECRET, Rig

# An interpreter that runs the test's container as verl_node.
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


SHARED = Path("/dev/shm")  # noqa: S108  the node's own, with bare
TMP = "/tmp"  # noqa: S108  short enough for the paths of sockets, which pytest's own folder is not


@pytest.fixture
def bare(rig: Rig) -> Iterator[Rig]:
    """A Python environment, and a short path for the node-local folder."""
    site = rig.root / "verl" / "lib" / "python3.12" / "site-packages"
    (site / "ray-2.60.0.dist-info").mkdir(parents=True)
    python = rig.root / "verl" / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(PYTHON)
    python.chmod(0o755)
    (rig.root / "bin" / "setsid").symlink_to(str(shutil.which("setsid")))
    with tempfile.TemporaryDirectory(prefix="b-", dir=TMP) as local:
        rig.environment.update(
            VERLJOB_LOCAL=local,
            VERLJOB_RUNTIME="bare",
            VERLJOB_IMAGE=str(rig.root / "verl"),
            VERLJOB_COMPILE_CACHE=str(rig.root / "compiled"),
        )
        yield rig
        assert os.listdir(local) == []


def node(bare: Rig, **more: str) -> subprocess.CompletedProcess[str]:
    chosen = {name: bare.environment[name] for name in ("VERLJOB_RUNTIME", "VERLJOB_IMAGE")}
    return bare.node(0, **{**chosen, **more})


def test_bare_runs_the_checkouts_entrypoint_in_the_environment(bare: Rig) -> None:
    bare.fake("container", bare.container("code=7"))

    done = node(bare, HF_TOKEN=SECRET, SLURM_JOB_PARTITION="main", PYTHONPATH="/mine", PATH_TO_DATA="/data")

    assert done.returncode == 7, done.stdout + done.stderr
    env = dict(line.split("=", 1) for line in bare.faked("run.env").splitlines() if "=" in line)
    folder = f"{bare.environment['VERLJOB_LOCAL']}/verljob-{os.getuid()}-20-1-0"
    assert env["PATH"].startswith(f"{bare.root}/verl/bin:")
    assert env["PYTHONPATH"] == f"{CHECKOUT}/entrypoints"
    assert (env["VERLJOB_LEASE"], env["VERLJOB_TOKEN_FILE"]) == (f"{folder}/lease", f"{folder}/token")
    assert env["TMPDIR"] == env["VERLJOB_RAY_TEMP_DIR"] == folder + TMP
    assert env["RAY_AUTH_TOKEN_PATH"] == f"{folder}/token"
    assert (env["SLURM_NODEID"], env["PATH_TO_DATA"]) == ("0", "/data")
    assert {"VERLJOB_RUN_DIR", "VERLJOB_HEAD_NODE", "VERLJOB_PORT_BLOCK"} < set(env)
    assert not {"SLURM_JOB_PARTITION", "VERLJOB_TOKEN", "VERLJOB_DRY_RUN"} & set(env)
    assert env["HF_TOKEN"] == SECRET  # entrypoint.sh reads it from the file
    assert bare.faked("cwd").strip() == str(bare.work)


@pytest.fixture
def shared() -> Iterator[str]:
    """Return the beginning of names in /dev/shm that no other test has."""
    with tempfile.NamedTemporaryFile(prefix="verljob-test-", dir=SHARED) as file:
        yield f"{file.name}-"
    for path in SHARED.glob(f"{Path(file.name).name}-*"):
        path.unlink()


def left_in(shared: str) -> set[str]:
    return {path.name.rpartition("-")[2] for path in SHARED.glob(f"{Path(shared).name}*")}


def test_shared_memory_that_no_process_uses_is_removed_with_the_job(bare: Rig, shared: str) -> None:
    for name in ("before", "mapped", "open"):
        Path(f"{shared}{name}").write_bytes(b"1")
    with open(f"{shared}mapped", "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    with mapped, open(f"{shared}open", "rb"):
        touched = " ".join(f"{shared}{name}" for name in ("made", "mapped", "open"))
        before = f"sleep 0.05; touch {touched}; ln -s {shared}before {shared}link"
        bare.fake("container", bare.container("code=0", before=before))

        node(bare)

        assert left_in(shared) == {"before", "mapped", "open", "link"}


def test_shared_memory_is_left_alone_if_the_job_has_no_token_to_compare_its_age_with(bare: Rig, shared: str) -> None:
    Path(f"{shared}before").touch()
    bare.fake("container", bare.container("code=0", before=f'rm "$FOLDER/token"; touch {shared}made'))

    node(bare)

    assert left_in(shared) == {"before", "made"}


def test_shared_memory_is_left_alone_while_another_job_of_the_account_runs(bare: Rig, shared: str) -> None:
    other = Path(bare.environment["VERLJOB_LOCAL"]) / f"verljob-{os.getuid()}-21-1-0"
    bare.fake("container", bare.container("code=0", before=f"sleep 0.05; mkdir {other}; touch {shared}made"))

    node(bare)

    other.rmdir()
    assert left_in(shared) == {"made"}


def test_rays_logs_are_saved(bare: Rig) -> None:
    logs = 'mkdir -p "$VERLJOB_RAY_TEMP_DIR/session_1/logs"; echo one > "$VERLJOB_RAY_TEMP_DIR/session_1/logs/gcs.log"'
    bare.fake("container", bare.container("code=0", before=logs))

    node(bare)

    assert (bare.run_dir / "nodes" / "0-n1" / "ray" / "gcs.log").read_text() == "one\n"


def test_bare_keeps_the_gpu_mask(bare: Rig) -> None:
    node(bare, CUDA_VISIBLE_DEVICES="2,3")

    assert "CUDA_VISIBLE_DEVICES=2,3\n" in bare.faked("run.env")


def test_bare_logs_in_one_line_what_it_does_not_limit(bare: Rig) -> None:
    lines = [line for line in node(bare).stdout.splitlines() if "does not limit" in line]

    assert len(lines) == 1
    assert all(word in lines[0] for word in ("devices", "CPUs", "memory", "processes", TMP))


def test_environments_with_different_packages_have_different_digests(bare: Rig) -> None:
    node(bare)
    first = bare.faked("run.env")
    (bare.root / "verl" / "lib" / "python3.12" / "site-packages" / "verl-0.9.1.dist-info").mkdir()
    node(bare)

    digests = [re.findall(r"^VERLJOB_IMAGE_DIGEST=(sha256:[0-9a-f]{64})$", text, re.MULTILINE)[0] for text in (
        first, bare.faked("run.env")
    )]  # fmt: skip
    assert digests[0] != digests[1]


def test_a_folder_without_an_environment_is_refused(bare: Rig) -> None:
    assert node(bare, VERLJOB_IMAGE="/no/such").returncode == 66
    assert node(bare, VERLJOB_IMAGE="verl.cpu:latest").returncode == 66
    assert "folder of a Python environment" in bare.verdict()["cause"]
    assert node(bare, VERLJOB_IMAGE=str(bare.work)).returncode == 66
    assert "no bin/python3" in bare.verdict()["cause"]

    (bare.root / "verl" / "lib" / "python3.12" / "site-packages" / "ray-2.60.0.dist-info").rmdir()
    assert node(bare).returncode == 64
    assert "Ray is not installed in it" in bare.verdict()["cause"]


def test_bare_refuses_a_mount_at_another_path(bare: Rig) -> None:
    assert node(bare, VERLJOB_MOUNTS=f"{bare.work}:/elsewhere").returncode == 64
    assert "/elsewhere" in bare.verdict()["cause"]


def test_a_local_folder_too_long_for_sockets_is_refused(bare: Rig) -> None:
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
def test_node_sh_kills_orphans_of_a_killed_supervisor(bare: Rig, stray: str) -> None:
    bare.fake("container", f"{stray} &\n{WRITTEN}; kill -KILL $$")

    with subprocess.Popen(["sleep", "300"]) as mine:
        done = node(bare)
        assert lives(mine.pid)
        mine.kill()

    assert done.returncode == 76
    assert not lives(int(bare.faked("stray")))


def test_orphans_are_killed_though_each_search_takes_longer_than_the_deadline(rig: Rig) -> None:
    done = rig.source(
        "",
        'source "$VERLJOB_HOME/slurm/runtimes/bare.sh"\n'
        'search=$(declare -f bare::_find_orphans) && eval "${search/_find_orphans/_search}"\n'
        'bare::_find_orphans() { SECONDS=$((SECONDS + 10)); bare::_search "$1"; }\n'
        "VERLJOB_LEASE=/tmp/mine/lease sleep 300 &> /dev/null & echo $!\n"
        "bare::_kill_orphans /tmp/mine",
    )

    assert done.returncode == 0, done.stderr
    assert not lives(int(done.stdout))


def test_the_sweep_kills_orphans_of_a_killed_node_sh(bare: Rig) -> None:
    container = 'exec 4<&-; setsid sleep 300 & echo $! > "$FAKE/stray"; echo $$ > "$FAKE/container.pid"; wait'
    own = {name: bare.environment[name] for name in ("VERLJOB_RUNTIME", "VERLJOB_IMAGE")}
    with running(bare, container, **own) as killed:
        killed.kill()

    done = bare.run("bash", str(CHECKOUT / "slurm" / "node.sh"), "sweep", **bare.step_environment(**own))

    assert done.returncode == 0, done.stderr
    assert not lives(int(bare.faked("stray")))
    assert not lives(int(bare.faked("container.pid")))


@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        ({}, "GPU-b,GPU-a"),
        ({"CUDA_VISIBLE_DEVICES": "3"}, "3"),
        ({"CUDA_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "1"}, ""),
    ],
)
def test_without_slurms_mask_the_steps_gpus_are_the_mask(rig: Rig, masks: dict[str, str], expected: str) -> None:
    script = "CONTAINER_GPUS=(GPU-b GPU-a)\nenvironment::_add_missing_mask\nbash -c 'echo $CUDA_VISIBLE_DEVICES'"

    assert rig.source("node/spec/environment", script, **masks).stdout.strip() == expected


def test_without_nvidia_gpus_no_mask_is_set(rig: Rig) -> None:
    script = 'CONTAINER_GPUS=()\nenvironment::_add_missing_mask\necho "mask: ${CUDA_VISIBLE_DEVICES-none}"'

    assert rig.source("node/spec/environment", script).stdout == "mask: none\n"
