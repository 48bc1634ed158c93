"""slurm/runtimes: each is one file behind one interface."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support.shell.container import STAYS, STAYS_DEAF, running, terminate
from tests.support.shell.processes import lives
from tests.support.shell.rig import CHECKOUT, SECRET, Rig, leftovers

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


@pytest.fixture
def checkout(rig: Rig) -> Path:
    """A checkout with one additional file in slurm/runtimes."""
    copy = rig.root / "checkout"
    shutil.copytree(CHECKOUT / "slurm", copy / "slurm", ignore=shutil.ignore_patterns("testbed", "*.py"))
    (copy / "entrypoints").symlink_to(CHECKOUT / "entrypoints")
    (copy / "slurm" / "runtimes" / "pretend.sh").write_text(PRETEND)
    return copy


def test_a_job_runs_with_a_runtime_of_one_file(rig: Rig, checkout: Path) -> None:
    rig.fake("step", STEP)
    rig.fake("container", rig.container("code=7"))

    done = rig.launch(
        "cluster", script=checkout / "slurm" / "launch.sh", VERLJOB_HOME=str(checkout), VERLJOB_RUNTIME="pretend"
    )

    assert done.returncode == 7, done.stdout + done.stderr
    assert "n1: image verl.cpu:latest is sha256:pretended" in done.stdout
    assert "n1: the runtime pretend does not limit, beyond what Slurm does: memory" in done.stdout
    assert "\nverdict: 7 (train on n1)" in done.stdout  # the last line where srun waits for its tasks' output
    assert leftovers(rig) == []


@pytest.mark.parametrize("container", [STAYS, STAYS_DEAF], ids=["that obeys", "deaf to TERM"])
def test_the_defaults_of_a_runtime_treat_the_container_as_a_child(rig: Rig, checkout: Path, container: str) -> None:
    with running(rig, container, VERLJOB_HOME=str(checkout), VERLJOB_RUNTIME="pretend") as node:
        terminate(node)

    assert node.returncode == 143
    assert not lives(int(rig.faked("container.pid")))
    assert leftovers(rig) == []


def test_a_runtime_that_cannot_load_a_path_is_reported(rig: Rig, checkout: Path) -> None:
    done = rig.node(VERLJOB_HOME=str(checkout), VERLJOB_RUNTIME="pretend", VERLJOB_IMAGE=str(rig.work))

    assert done.returncode == 66
    assert "the runtime pretend cannot load a path" in rig.verdict()["cause"]


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_runtime_never_reads_slurm(name: str) -> None:
    files = [CHECKOUT / "slurm" / "runtimes" / f"{name}.sh", CHECKOUT / "slurm" / "lib" / "runtime" / "oci.sh"]

    assert [line for file in files for line in file.read_text().splitlines() if re.search(r"\bSLURM", line)] == []


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_runtime_file_is_small(name: str) -> None:
    assert len((CHECKOUT / "slurm" / "runtimes" / f"{name}.sh").read_text().splitlines()) <= 200


@pytest.mark.parametrize("name", RUNTIMES)
def test_the_documentation_lists_what_each_runtime_does_not_limit(rig: Rig, name: str) -> None:
    rows = re.findall(rf"^\| {name} \| ([a-z, ]*) \|$", (CHECKOUT / "docs" / "runtimes.md").read_text(), re.MULTILINE)
    script = "CONTAINER_GPUS=(GPU-a)\nruntime::unlimited"
    libraries = (
        "for name in common/log common/verdict runtime/runtime; do source $VERLJOB_HOME/slurm/lib/$name.sh; done"
    )
    account = [str(shutil.which("unshare")), "--user", "--map-user=2001", "--map-group=2001"]  # podman limits root's
    done = rig.run(
        *account,
        "bash",
        "-c",
        f"HOST=n1 ENDING=\n{libraries}\n{script}",
        VERLJOB_HOME=str(CHECKOUT),
        VERLJOB_RUNTIME=name,
    )

    assert rows == [", ".join(done.stdout.split())], done.stderr


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("docker", "\ndocker run --rm "),
        ("podman", "\npodman run --rm "),
        ("apptainer", " exec --containall --cleanenv "),
        ("enroot", " enroot start --rc "),
        ("bare", "/entrypoints/entrypoint.sh node\n"),
    ],
)
def test_a_dry_run_prints_the_command_of_each_runtime(rig: Rig, name: str, command: str) -> None:
    done = rig.launch(
        "cluster", VERLJOB_DRY_RUN="1", SLURM_JOB_ID="<unset>", VERLJOB_RUNTIME=name, VERLJOB_HOME=str(CHECKOUT),
        VERLJOB_PLATFORM="cpu", VERLJOB_IMAGE="/shared/verl", HF_TOKEN=SECRET,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.count(command) == 2
    assert SECRET not in done.stdout
    assert leftovers(rig) == []
