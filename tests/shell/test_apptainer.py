"""slurm/runtimes/apptainer.sh: files as images, one fetch for many nodes, and nothing remains of a killed client."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.shell.container import (
    STAYS,
    STAYS_DEAF,
    choose,
    chosen,
    run_chosen,
    running,
    terminate,
    values,
)
from tests.support.shell.processes import lives
from tests.support.shell.rig import CHECKOUT, SECRET, Rig, leftovers

NAME = "hub.example/team/verl.cpu"
DIGEST = "sha256:" + "a" * 64
WORDS = ["--quiet", "exec", "--containall", "--cleanenv", "--no-eval", "--no-home", "--no-umask"]


@pytest.fixture
def squash(rig: Rig) -> Path:
    """A file image, which node.sh starts with Apptainer."""
    file = rig.root / "verl.sqsh"
    file.write_bytes(b"hsqs" + bytes(5000) + b"the middle" + bytes(5000))
    choose(rig, "apptainer", str(file))
    return file


@pytest.fixture
def registry(rig: Rig) -> str:
    """A registry with one image, which node.sh starts with Apptainer."""
    rig.fake("registry", f"{NAME}@{DIGEST}\n")
    choose(rig, "apptainer", f"{NAME}@{DIGEST}")
    return f"{NAME}@{DIGEST}"


def calls(rig: Rig, command: str) -> list[list[str]]:
    found = [call.splitlines() for call in rig.faked("apptainer.argv").split("\n\n")]
    return [call for call in found if command in call[:2]]


def started(rig: Rig) -> list[str]:
    """Return the arguments by which the container was started."""
    return calls(rig, "exec")[-1]


def mounted(argv: list[str]) -> dict[str, tuple[str, bool]]:
    """Parse --mount flags without quotes in their paths: target to source and whether it is read-only."""
    found = {}
    for mount in values(argv, "--mount"):
        _, source, target, *options = mount.split(",")
        assert (mount.startswith("type=bind,"), options in ([], ["ro"])) == (True, True)
        found[target.strip('"').removeprefix("destination=")] = (
            source.strip('"').removeprefix("source="),
            bool(options),
        )
    return found


def digest_of(rig: Rig) -> str:
    """Return the digest by which the head compares the nodes."""
    return rig.faked("run.env").partition("\nVERLJOB_IMAGE_DIGEST=")[2].partition("\n")[0]


def test_the_container_is_isolated_and_runs_the_entrypoint(rig: Rig, squash: Path) -> None:
    done = run_chosen(rig)

    assert done.returncode == 0, done.stdout + done.stderr
    argv = started(rig)
    assert argv[:7] == WORDS
    assert values(argv, "--pwd") == [str(rig.work)]
    assert argv[-5:] == [str(squash), "/bin/bash", "/run/verljob/environment", "/opt/verljob/entrypoint.sh", "node"]
    assert not {"--fakeroot", "--writable-tmpfs", "--no-init", "--nv", "--rocm", "--env"} & set(argv)
    assert leftovers(rig) == []


def test_folders_are_mounted_and_keys_are_hidden(rig: Rig, squash: Path) -> None:
    (rig.home / ".ssh").mkdir()
    extra = rig.root / 'a, "b" c'
    extra.mkdir()

    done = run_chosen(rig, VERLJOB_MOUNTS=f"{rig.root}/fake:/data:ro", VERLJOB_VERL=str(rig.home))
    assert done.returncode == 0, done.stdout
    mounts = mounted(started(rig))
    local = f"{rig.root}/local/verljob-{os.getuid()}-20-1-0"
    assert mounts["/tmp"] == (f"{local}/tmp", False)  # noqa: S108  in the container
    assert mounts["/run/verljob/environment"] == (f"{local}/environment", True)
    assert mounts["/data"] == (f"{rig.root}/fake", True)
    assert mounts[f"{rig.home}/.ssh"] == (f"{local}/empty", True)

    target = str(extra).replace(",", "")
    extra.rename(target)
    run_chosen(rig, HF_HOME=target)
    assert f'type=bind,"source={target}","destination={target}"'.replace('"b"', '""b""') in values(
        started(rig), "--mount"
    )


def test_values_are_in_no_command_and_are_not_evaluated(rig: Rig, squash: Path) -> None:
    value = "$(touch ran) `touch ran` 'one' \"two\" \\ é"

    done = run_chosen(rig, WANDB_NAME=value, NCCL_X="first\nsecond=$(touch ran)", HF_TOKEN=SECRET)

    assert done.returncode == 0, done.stdout
    assert f"\nWANDB_NAME={value}\n" in rig.faked("run.env")
    assert "\nNCCL_X=first\nsecond=$(touch ran)\n" in rig.faked("run.env")
    assert "touch ran" not in rig.faked("apptainer.argv")
    assert SECRET not in rig.faked("apptainer.argv")
    assert not (rig.work / "ran").exists()


def test_a_variable_that_is_not_set_is_removed_from_the_image_too(rig: Rig, squash: Path) -> None:
    rig.fake("container", 'cp "$FOLDER/environment" "$FAKE/script"\n' + rig.container("code=0"))

    run_chosen(rig, CUDA_VISIBLE_DEVICES="0")

    assert "\nunset CUDA_VISIBLE_DEVICES\n" in rig.faked("script")
    assert "CUDA_VISIBLE_DEVICES" not in rig.faked("run.env")


def test_the_clients_variables_give_it_no_further_options(rig: Rig, squash: Path) -> None:
    dropped = {"APPTAINERENV_LD_PRELOAD": "/evil.so", "SINGULARITYENV_X": "1", "APPTAINER_WRITABLE_TMPFS": "1"}
    run_chosen(rig, **dropped, APPTAINER_BIND="/opt/cray", SINGULARITY_BINDPATH="/scratch")

    names = [line.partition("=")[0] for line in rig.faked("client.env").splitlines()]
    own = {name for name in names if name.startswith(("APPTAINER", "SINGULARITY"))}
    assert own == {"APPTAINER_BIND", "SINGULARITY_BINDPATH"}


GPUS = """\
CONTAINER_WORKDIR=/w CONTAINER_MOUNTS=() CONTAINER_ENV=() LOCAL=/l VERLJOB_DRY_RUN=1
CONTAINER_DEVICES=({devices}) CONTAINER_GPUS=({gpus}) CONTAINER_TMPFS=()
TABLE[unset]="CUDA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES"
runtime::start_argv
printf '%s\\n' "${{RUNTIME_ARGV[@]}}" "mask=${{CUDA_VISIBLE_DEVICES-}},${{ROCR_VISIBLE_DEVICES-}}"
runtime::unlimited
"""


def described(rig: Rig, *, gpus: str = "", devices: str = "") -> list[str]:
    """Return RUNTIME_ARGV, the masks and the limits that are not set."""
    done = rig.source(
        "common/log common/verdict common/env_table runtime/runtime", GPUS.format(gpus=gpus, devices=devices),
        VERLJOB_RUNTIME="apptainer", VERLJOB_IMAGE="/i.sif", CUDA_VISIBLE_DEVICES="7", ROCR_VISIBLE_DEVICES="7",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_nvidia_gpus_are_the_steps_by_a_mask_of_uuids(rig: Rig) -> None:
    lines = described(rig, gpus="GPU-a GPU-b", devices="/dev/infiniband")

    assert "--nv" in lines
    assert lines[-2:] == ["mask=GPU-a,GPU-b,", "devices cpus memory pids shm ulimits"]


def test_amd_gpus_are_the_steps_by_their_device_nodes(rig: Rig) -> None:
    lines = described(rig, devices="/dev/kfd /dev/dri/renderD129")

    devices = [source for source, _ in mounted(lines).values() if source.startswith("/dev")]
    assert devices == ["/dev/kfd", "/dev/dri/renderD129"]
    assert not {"--nv", "--rocm"} & set(lines)
    assert lines[-1] == "cpus memory pids shm ulimits"


def test_the_start_says_what_is_not_limited(rig: Rig, squash: Path) -> None:
    line = "the runtime apptainer does not limit, beyond what Slurm does: CPUs, memory, the number of processes"

    assert line in run_chosen(rig).stdout


def test_the_digest_of_a_file_is_of_its_whole_content(rig: Rig, squash: Path) -> None:
    run_chosen(rig)
    assert digest_of(rig) == "sha256:" + hashlib.sha256(squash.read_bytes()).hexdigest()

    squash.write_bytes(squash.read_bytes().replace(b"middle", b"MIDDLE"))
    run_chosen(rig)
    assert digest_of(rig) == "sha256:" + hashlib.sha256(squash.read_bytes()).hexdigest()


@pytest.fixture
def counted(rig: Rig) -> Path:
    """Count the calls of sha256sum."""
    real, log = (rig.root / "bin" / "sha256sum"), rig.root / "hashed"
    target = real.resolve()
    real.unlink()
    real.write_text(f'#!/bin/bash\n[[ ${{@: -1}} != *.s* ]] || echo "${{@: -1}}" >> {log}\nexec {target} "$@"\n')
    real.chmod(0o755)
    log.touch()
    return log


def test_one_node_makes_the_digest_for_all(rig: Rig, squash: Path, counted: Path) -> None:
    for node_id in (0, 1):
        assert run_chosen(rig, node_id).returncode == 0

    assert counted.read_text() == f"{squash}\n"


def test_a_digest_beside_the_file_is_used_unless_it_is_older(rig: Rig, squash: Path, counted: Path) -> None:
    beside = Path(f"{squash}.sha256")
    beside.write_text(f"{'b' * 64}  verl.sqsh\n")
    run_chosen(rig)
    assert (digest_of(rig), counted.read_text()) == ("sha256:" + "b" * 64, "")

    os.utime(beside, (0, 0))
    run_chosen(rig)
    assert digest_of(rig) == "sha256:" + hashlib.sha256(squash.read_bytes()).hexdigest()

    beside.write_text("$(touch ran)\n")
    run_chosen(rig)
    assert digest_of(rig) == "sha256:" + hashlib.sha256(squash.read_bytes()).hexdigest()


def test_the_digest_of_a_sandbox_is_of_names_modes_links_and_content(rig: Rig, squash: Path) -> None:
    sandbox = rig.root / "sandbox"
    (sandbox / "usr" / "a b").mkdir(parents=True)
    (sandbox / "usr" / "a b" / ".hidden\nname").write_text("1")
    (sandbox / "link").symlink_to("usr")
    changes = [
        "true",
        "printf 2 > usr/a*/.hidden*",
        "chmod 700 usr",
        "mv 'usr/a b' usr/c",
        "ln -sfn usr/c link",
    ]
    seen = set()
    for change in changes:
        subprocess.run(["bash", "-euc", change], cwd=sandbox, check=True)
        for record in rig.run_dir.glob(".image-*"):
            record.unlink()
        assert run_chosen(rig, VERLJOB_IMAGE=str(sandbox)).returncode == 0
        seen.add(digest_of(rig))

    assert len(seen) == len(changes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("an archive", "it is neither a SIF nor a squashfs nor a sandbox"),
        (None, "it is a folder without usr, not a sandbox"),
    ],
)
def test_another_file_or_folder_is_refused(rig: Rig, squash: Path, content: str | None, message: str) -> None:
    other = rig.work
    if content:
        other = rig.root / "verl.tar"
        other.write_text(content)

    assert run_chosen(rig, VERLJOB_IMAGE=str(other)).returncode == 66
    assert message in rig.verdict()["cause"]
    assert "docker://REGISTRY/NAME@sha256:" in rig.verdict()["fix"]


def test_an_image_without_the_toolkit_is_refused(rig: Rig, squash: Path) -> None:
    rig.fake("foreign", "")

    assert run_chosen(rig).returncode == 64
    assert "/opt/verljob/entrypoint.sh" in rig.verdict()["cause"]


FATAL = {
    "container creation failed: image driver mount failure: image driver squashfuse_ll instance exited with error: "
    "squashfuse_ll exited: fuse: device not found, try 'modprobe fuse' first": 69,
    "While checking container encryption: could not open image /i.sif: image format not recognized": 66,
}  # messages of 1.4.5


@pytest.mark.parametrize(("message", "code"), FATAL.items())
def test_a_client_that_starts_nothing_is_reported_with_its_error(
    rig: Rig, squash: Path, message: str, code: int
) -> None:
    rig.fake("apptainer.fatal", message)

    assert run_chosen(rig).returncode == code
    assert message in rig.verdict()["cause"]
    assert leftovers(rig) == []


OWN_FAILURE = "echo 'FATAL:   container creation failed: no space left' >&2; exit 255"
AFTER_A_HEARTBEAT = 'printf . > "$FOLDER/out/pulse"; sleep 1.5; echo "FATAL: mine" >&2; exit 255'
NOT_STARTED = "apptainer did not start the container on n1: container creation failed: no space left"
LOST = "the container on n1 ended with 255 and left no verdict"


@pytest.mark.parametrize(
    ("container", "code", "cause"),
    [(OWN_FAILURE, 69, NOT_STARTED), ("exit 255", 76, LOST), (AFTER_A_HEARTBEAT, 76, LOST)],
    ids=["the client's", "the program's", "the program's, after a heartbeat"],
)
def test_the_clients_own_255_is_told_from_the_programs(
    rig: Rig, squash: Path, container: str, code: int, cause: str
) -> None:
    rig.fake("container", container)

    assert run_chosen(rig).returncode == code
    assert rig.verdict()["cause"].startswith(cause)


def test_a_255_with_a_verdict_is_the_programs(rig: Rig, squash: Path) -> None:
    rig.fake("container", rig.container("code=255", before="echo 'FATAL: mine' >&2"))

    assert run_chosen(rig).returncode == 255


def test_without_a_client_the_node_exits_with_69(rig: Rig, squash: Path) -> None:
    (rig.root / "bin" / "apptainer").unlink()

    assert run_chosen(rig).returncode == 69
    assert "neither apptainer nor singularity on n1" in rig.verdict()["cause"]


def test_singularity_is_used_where_there_is_no_apptainer(rig: Rig, squash: Path) -> None:
    (rig.root / "bin" / "apptainer").rename(rig.root / "bin" / "singularity")

    assert run_chosen(rig).returncode == 0
    assert started(rig)[:7] == WORDS


def as_account(rig: Rig) -> subprocess.CompletedProcess[str]:
    """Run node.sh as an account that is not root."""
    become = [str(shutil.which("unshare")), "--user", "--map-user=2001", "--map-group=2001"]
    return rig.run(*become, "bash", str(CHECKOUT / "slurm" / "node.sh"), **rig.step_environment(0, **chosen(rig)))


def test_without_user_namespaces_an_account_needs_a_setuid_client(rig: Rig, squash: Path) -> None:
    rig.fake("no_namespaces", "")
    assert as_account(rig).returncode == 69
    assert "cannot make user namespaces on n1" in rig.verdict()["cause"]
    assert "sysctl user.max_user_namespaces" in rig.verdict()["fix"]

    starter = rig.root / "fake" / "libexec" / "apptainer" / "bin" / "starter-suid"
    starter.parent.mkdir(parents=True)
    starter.touch()
    starter.chmod(0o4755)
    assert as_account(rig).returncode == 0


@pytest.mark.parametrize("container", [STAYS, STAYS_DEAF], ids=["that obeys", "deaf to TERM"])
def test_term_ends_container_and_helper(rig: Rig, squash: Path, container: str) -> None:
    rig.fake("helper", "")
    with running(rig, container, **chosen(rig)) as process:
        terminate(process)

    assert process.returncode == 143
    assert not lives(int(rig.faked("helper.pid")))
    assert not lives(int(rig.faked("container.pid")))
    assert leftovers(rig) == []


def test_the_helper_of_a_killed_client_is_killed(rig: Rig, squash: Path) -> None:
    """The client is the container's process here; the helper has no environment and no parent."""
    rig.fake("helper", "")
    rig.fake("container", "kill -KILL $$")

    with subprocess.Popen(["sleep", "300"]) as mine:
        done = run_chosen(rig)
        assert lives(mine.pid)
        mine.kill()

    assert done.returncode == 76
    assert not lives(int(rig.faked("helper.pid")))
    assert leftovers(rig) == []


def test_the_sweep_kills_what_a_killed_node_sh_left(rig: Rig, squash: Path) -> None:
    rig.fake("helper", "")
    with running(rig, STAYS_DEAF, **chosen(rig)) as killed:
        killed.kill()
    own = int(rig.faked("container.pid"))
    assert lives(own)

    done = rig.run("bash", str(CHECKOUT / "slurm" / "node.sh"), "sweep", **rig.step_environment(**chosen(rig)))

    assert done.returncode == 0, done.stderr
    assert not lives(own)
    assert not lives(int(rig.faked("helper.pid")))
    assert leftovers(rig) == []


def test_only_the_jobs_own_processes_are_killed(rig: Rig) -> None:
    (rig.root / "link").symlink_to(".")
    for name in ("mine", "other"):
        (rig.root / name).touch()
    script = f"""\
bash -c "$PROCESS_MARK_WRAPPER" {rig.root}/mine sleep 300 &> /dev/null & child=$!
until process_mark::find {rig.root}/mine; do sleep 0.05; done
process_mark::kill {rig.root}/link/mine
! process_mark::find {rig.root}/absent/client
echo "$child"
"""
    with subprocess.Popen(["bash", "-c", 'exec 62< "$0"; exec sleep 300', rig.root / "other"]) as other:
        done = rig.source("common/process runtime/process_mark", script)
        assert not lives(int(done.stdout)), done.stderr
        assert lives(other.pid)
        other.kill()


def test_a_command_enters_the_container_by_its_init(rig: Rig) -> None:
    folder = rig.root / "local" / "verljob-1-20-1-0"
    folder.mkdir()
    (folder / "client").touch()
    init = rig.root / "appinit"
    init.symlink_to("/bin/sleep")
    with subprocess.Popen(["bash", "-c", 'exec 62< "$0"; exec "$1" 300', folder / "client", init]) as process:
        script = (
            f"until read -r name < /proc/{process.pid}/comm && [[ $name == appinit ]]; do sleep 0.05; done\n"
            f"runtime::exec_argv {folder.name} ray status; printf '%s\\n' \"${{RUNTIME_ARGV[@]}}\""
        )
        done = rig.source("common/log common/verdict runtime/runtime", script, VERLJOB_RUNTIME="apptainer")
        process.kill()

    argv = done.stdout.splitlines()
    assert values(argv, "--target") == [str(process.pid)], done.stderr
    assert argv[-4:] == ["/bin/bash", "/run/verljob/environment", "ray", "status"]


def test_an_image_of_a_registry_is_fetched_once_a_node(rig: Rig, registry: str) -> None:
    for _ in range(2):
        done = run_chosen(rig)
        assert done.returncode == 0, done.stdout

    store = rig.root / "local" / f"verljob-images-{os.getuid()}"
    assert [call[-1] for call in calls(rig, "pull")] == [f"docker://{registry}"]
    line = f"{registry} is fetched by each node, at most 16 at once, into {store}"
    assert line in (rig.run_dir / "nodes" / "0-n1" / "node.log").read_text()
    assert started(rig)[-5] == f"{store}/{'a' * 64}.sif"
    assert digest_of(rig) == DIGEST
    assert sorted(path.name for path in store.iterdir()) == [f"{'a' * 64}.sif{end}" for end in ("", ".lock", ".sha256")]


def test_with_a_shared_store_an_image_is_fetched_once_for_all_nodes(rig: Rig, registry: str) -> None:
    store = rig.root / "store"
    rig.fake("pull", "sleep 1")
    settings = {**chosen(rig), "VERLJOB_IMAGE_STORE": str(store)}
    with (
        rig.start_node(**settings) as one,
        rig.start_node(**settings, SLURM_NODEID="1", SLURMD_NODENAME="n2", VERLJOB_LOCAL=str(rig.home)) as two,
    ):
        outputs = [process.communicate(timeout=20)[0] for process in (one, two)]

    assert (one.returncode, two.returncode) == (0, 0), outputs
    assert len(calls(rig, "pull")) == 1
    assert f"{registry} is fetched once for all nodes, into {store}" in outputs[0]
    logs = [(rig.run_dir / "nodes" / name / "node.log").read_text() for name in ("0-n1", "1-n2")]
    assert "another node or job has brought it" in "".join(logs)


@pytest.mark.parametrize("image", [f"docker://{NAME}@{DIGEST}", f"{NAME}:1@{DIGEST}"])
def test_the_client_gets_the_digest_without_a_tag(rig: Rig, registry: str, image: str) -> None:
    assert run_chosen(rig, VERLJOB_IMAGE=image).returncode == 0
    assert calls(rig, "pull")[0][-1] == f"docker://{registry}"


NO_DIGEST = ["verl.cpu:latest", f"{NAME}:1", f"{NAME}@sha256:12", f"--x/y@{DIGEST}", f"a/$(touch ran)@{DIGEST}"]


@pytest.mark.parametrize("image", NO_DIGEST)
def test_a_reference_without_a_digest_is_refused(rig: Rig, registry: str, image: str) -> None:
    assert run_chosen(rig, VERLJOB_IMAGE=image).returncode == 66
    assert "by their digest only" in rig.verdict()["cause"]
    assert not calls(rig, "pull")
    assert not (rig.work / "ran").exists()


def test_a_failed_pull_is_reported_and_leaves_nothing(rig: Rig, registry: str) -> None:
    rig.fake("registry", "")

    assert run_chosen(rig, TMPDIR=str(rig.home)).returncode == 66
    assert "manifest unknown" in rig.verdict()["cause"]
    assert [path.suffix for path in (rig.root / "local").glob("verljob-images-*/*")] == [".lock"]
    assert not list(rig.home.glob("verljob-pull.*"))


def test_a_stopped_pull_leaves_nothing(rig: Rig, registry: str) -> None:
    rig.fake("pull", 'echo hsqs > "$1"; echo $$ > "$FAKE/container.pid"; sleep 20')
    with running(rig, TMPDIR=str(rig.home), **chosen(rig)) as process:
        terminate(process)

    assert process.returncode == 143
    assert not lives(int(rig.faked("container.pid")))
    assert [path.suffix for path in (rig.root / "local").glob("verljob-images-*/*")] == [".lock"]
    assert not list(rig.home.glob("verljob-pull.*"))


def test_the_nodes_own_store_keeps_the_images_used_last(rig: Rig, registry: str) -> None:
    store = rig.root / "local" / f"verljob-images-{os.getuid()}"
    store.mkdir()
    for age, letter in enumerate("bcde"):
        for end in ("", ".sha256"):
            (store / f"{letter * 64}.sif{end}").touch()
            os.utime(store / f"{letter * 64}.sif{end}", (1000 - age, 1000 - age))
    dead = store / f"{'b' * 64}.sif.new-n1-1"
    dead.touch()
    os.utime(dead, (0, 0))

    assert run_chosen(rig).returncode == 0

    assert sorted(path.name[0] for path in store.glob("*.sif")) == ["a", "b", "c"]
    assert not dead.exists()


def test_a_store_that_others_can_write_is_refused(rig: Rig, registry: str) -> None:
    store = rig.root / "store"
    store.mkdir()
    store.chmod(0o777)

    assert run_chosen(rig, VERLJOB_IMAGE_STORE=str(store)).returncode == 77
    assert not calls(rig, "pull")
    assert run_chosen(rig, VERLJOB_IMAGE_STORE="images").returncode == 64
