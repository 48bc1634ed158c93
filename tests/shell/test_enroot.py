"""slurm/runtimes/enroot.sh: a squashfs that a node unpacks once, its own /dev, nothing left of a killed client."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shlex
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
STORE = f"verljob-enroot-{os.getuid()}"
SHM = "/dev/shm"  # noqa: S108  in the container


@pytest.fixture
def squash(rig: Rig) -> Path:
    """A file image, which node.sh starts with enroot."""
    file = rig.root / "verl.sqsh"
    file.write_bytes(b"hsqs" + bytes(5000))
    choose(rig, "enroot", str(file))
    return file


@pytest.fixture
def registry(rig: Rig) -> str:
    """A registry with one image, which node.sh starts with enroot."""
    rig.fake("registry", f"{NAME}@{DIGEST}\n")
    choose(rig, "enroot", f"{NAME}@{DIGEST}")
    return f"{NAME}@{DIGEST}"


def calls(rig: Rig, command: str) -> list[list[str]]:
    found = [call.splitlines() for call in rig.faked("enroot.argv").split("\n\n")]
    return [call for call in found if call[:1] == [command]]


def started(rig: Rig) -> list[str]:
    """Return the arguments by which the container was started."""
    return calls(rig, "start")[-1]


def mounted(argv: list[str]) -> dict[str, tuple[str, str, str]]:
    """Parse --mount flags: target to source, file system and options."""
    found = {}
    for mount in values(argv, "--mount"):
        source, target, kind, options = (
            field.encode().decode("unicode_escape") if "\\" in field else field for field in mount.split(":")
        )
        found[target] = (source, kind, options)
    return found


def store(rig: Rig) -> Path:
    return rig.root / "local" / STORE


def hex_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def remains(rig: Rig) -> list[str]:
    """List what a job left on the node besides the unpacked images and their locks."""
    inside = [path.name for path in store(rig).iterdir() if path.suffix != ".lock"] if store(rig).exists() else []
    unfinished = [name for name in inside if not set(name) <= set("0123456789abcdef")]
    return [name for name in leftovers(rig) if name not in {STORE, f"verljob-images-{os.getuid()}"}] + unfinished


def test_the_container_is_isolated_and_runs_the_entrypoint(rig: Rig, squash: Path) -> None:
    done = run_chosen(rig, ENROOT_ROOTFS_WRITABLE="yes", ENROOT_REMAP_ROOT="yes", ENROOT_DATA_PATH=str(rig.home))

    assert done.returncode == 0, done.stdout + done.stderr
    argv = started(rig)
    assert argv[argv.index(hex_of(squash)) :] == [
        hex_of(squash), str(rig.work), "/bin/bash", "/run/verljob/environment",
        "/usr/bin/tini", "-s", "-g", "--", "/opt/verljob/entrypoint.sh", "node",
    ]  # fmt: skip
    assert not {"--rw", "--root", "--env", "--conf"} & set(argv)
    settings = dict(line.split("=", 1) for line in rig.faked("client.env").splitlines() if line.startswith("ENROOT_"))
    assert {name for name, value in settings.items() if value == "yes"} == {"ENROOT_UNSHARE_PID"}
    assert settings["ENROOT_LOGIN_SHELL"] == settings["ENROOT_MOUNT_HOME"] == "no"
    assert {
        value for name, value in settings.items() if name.endswith("_PATH") and not value.startswith(str(store(rig)))
    } == set()
    assert remains(rig) == []


def test_the_hooks_and_mounts_of_the_account_are_not_used(rig: Rig, squash: Path) -> None:
    run_chosen(rig, ENROOT_CONFIG_PATH=str(rig.home))

    assert f"ENROOT_CONFIG_PATH={store(rig)}/config\n" in rig.faked("client.env")


def test_folders_are_mounted_and_keys_are_hidden(rig: Rig, squash: Path) -> None:
    (rig.home / ".ssh").mkdir()
    odd = rig.root / "a b:c\\d"
    odd.mkdir()

    done = run_chosen(rig, HF_HOME=str(odd), VERLJOB_MOUNTS=f"{rig.root}/fake:/data:ro,{squash}:/file")

    assert done.returncode == 0, done.stdout
    mounts = mounted(started(rig))
    local = f"{rig.root}/local/verljob-{os.getuid()}-20-1-0"
    assert mounts["/tmp"] == (f"{local}/tmp", "none", "x-create=dir,rbind,rw")  # noqa: S108  in the container
    assert mounts["/run/verljob/environment"] == (f"{local}/environment", "none", "x-create=file,rbind,ro")
    assert mounts["/data"] == (f"{rig.root}/fake", "none", "x-create=dir,rbind,ro")
    assert mounts["/file"] == (str(squash), "none", "x-create=file,rbind,rw")
    assert mounts[f"{rig.home}/.ssh"] == ("tmpfs", "tmpfs", "x-create=dir,ro,mode=500")
    assert mounts[str(odd)][0] == str(odd)
    assert not [
        mount for mount in values(started(rig), "--mount") if mount.count(":") != 3 or set(" \t\n") & set(mount)
    ]


def test_an_older_release_that_cannot_mount_such_a_path_is_named(rig: Rig, squash: Path) -> None:
    rig.fake("enroot.error", "enroot-mount: failed to mount: /a\\040b at /rootfs/a\\040b: No such file or directory\n")

    assert run_chosen(rig).returncode == 69
    assert rig.verdict()["cause"].endswith("; this release of enroot mounts no path with a blank, colon or backslash")


def test_values_are_in_no_command_and_are_not_evaluated(rig: Rig, squash: Path) -> None:
    value = "$(touch ran) `touch ran` 'one' \"two\" \\ ${HOME} é"

    done = run_chosen(rig, WANDB_NAME=value, NCCL_X="first\nLD_PRELOAD=/evil.so", HF_TOKEN=SECRET)

    assert done.returncode == 0, done.stdout
    assert f"\nWANDB_NAME={value}\n" in rig.faked("run.env")
    assert "\nNCCL_X=first\nLD_PRELOAD=/evil.so\n" in rig.faked("run.env")
    assert "touch ran" not in rig.faked("enroot.argv")
    assert SECRET not in rig.faked("enroot.argv")
    assert not (rig.work / "ran").exists()


def test_a_variable_that_is_not_set_is_removed_from_the_image_too(rig: Rig, squash: Path) -> None:
    rig.fake("container", 'cp "$FOLDER/environment" "$FAKE/script"\n' + rig.container("code=0"))

    run_chosen(rig, CUDA_VISIBLE_DEVICES="0")

    assert "\nunset CUDA_VISIBLE_DEVICES\n" in rig.faked("script")
    assert "CUDA_VISIBLE_DEVICES" not in rig.faked("run.env")


def test_the_container_has_its_own_dev(rig: Rig, squash: Path) -> None:
    rig.fake("container", 'ls -l "$FOLDER/dev" > "$FAKE/dev"\n' + rig.container("code=0"))

    assert run_chosen(rig).returncode == 0

    mounts = mounted(started(rig))
    targets = list(mounts)
    assert [target for target in targets if target.startswith("/dev")] == [
        "/dev", "/dev/pts", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", SHM,
    ]  # fmt: skip
    assert mounts[SHM] == ("tmpfs", "tmpfs", "x-create=dir,rw,nosuid,nodev,noexec,mode=1777,size=8g")
    assert "fd -> /proc/self/fd\n" in rig.faked("dev")


GPUS = """\
CONTAINER_WORKDIR=/w CONTAINER_MOUNTS=() CONTAINER_ENV=() LOCAL=/l VERLJOB_DRY_RUN=1
CONTAINER_DEVICES=({devices}) CONTAINER_GPUS=({gpus}) CONTAINER_TMPFS=()
TABLE[unset]="CUDA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES"
runtime::start_argv
printf '%s\\n' "${{RUNTIME_ARGV[@]}}" "mask=${{CUDA_VISIBLE_DEVICES-}},${{ROCR_VISIBLE_DEVICES-}}"
bash -c 'echo "hook=$NVIDIA_VISIBLE_DEVICES"'
runtime::unlimited
"""


def described(rig: Rig, *, gpus: str = "", devices: str = "") -> list[str]:
    """Return RUNTIME_ARGV, the masks, what enroot's hook for NVIDIA reads and the limits that are not set."""
    done = rig.source(
        "common/log common/verdict common/env_table runtime/runtime", GPUS.format(gpus=gpus, devices=devices),
        VERLJOB_RUNTIME="enroot", VERLJOB_IMAGE="/i.sqsh", CUDA_VISIBLE_DEVICES="7", ROCR_VISIBLE_DEVICES="7",
        NVIDIA_VISIBLE_DEVICES="all",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_nvidia_gpus_are_the_steps_by_enroots_hook_and_a_mask(rig: Rig) -> None:
    lines = described(rig, gpus="GPU-a GPU-b", devices="/dev/infiniband")

    assert lines[-3:] == ["mask=GPU-a,GPU-b,", "hook=GPU-a,GPU-b", "devices cpus memory pids ulimits"]
    assert [target for target in mounted(lines) if target.startswith("/dev")] == [SHM]


def test_amd_gpus_are_the_steps_by_their_device_nodes(rig: Rig) -> None:
    lines = described(rig, devices="/dev/kfd /dev/dri/renderD129")

    assert list(mounted(lines))[8:10] == ["/dev/kfd", "/dev/dri/renderD129"]
    assert lines[-3:] == ["mask=7,7", "hook=void", "cpus memory pids ulimits"]


def test_the_start_says_what_is_not_limited(rig: Rig, squash: Path) -> None:
    expected = (
        "the runtime enroot does not limit, beyond what Slurm does: CPUs, memory, the number of processes, limits above"
    )
    assert expected in run_chosen(rig).stdout


def test_a_node_unpacks_an_image_once(rig: Rig, squash: Path) -> None:
    for _ in range(2):
        done = run_chosen(rig)
        assert done.returncode == 0, done.stdout

    assert calls(rig, "create") == [["create", "--name", f"{hex_of(squash)}.new", str(squash)]]
    assert f"VERLJOB_IMAGE_DIGEST=sha256:{hex_of(squash)}\n" in rig.faked("run.env")
    assert sorted(path.name for path in store(rig).iterdir()) == [hex_of(squash), f"{hex_of(squash)}.lock"]
    assert oct(store(rig).stat().st_mode)[-3:] == "700"


def test_a_second_job_waits_for_the_first_to_unpack(rig: Rig, squash: Path) -> None:
    rig.fake("create", "sleep 1")
    with rig.start_node(**chosen(rig)) as one, rig.start_node(**chosen(rig), SLURM_JOB_ID="21") as two:
        outputs = [process.communicate(timeout=20)[0] for process in (one, two)]

    assert (one.returncode, two.returncode) == (0, 0), outputs
    assert len(calls(rig, "create")) == 1


@pytest.mark.parametrize("end", ["exit 1", "kill -KILL $PPID"])
def test_a_failed_unpack_is_reported_and_leaves_nothing(rig: Rig, squash: Path, end: str) -> None:
    rig.fake("create", end)

    assert run_chosen(rig).returncode == 66
    assert f"{squash} cannot be used on n1: " in rig.verdict()["cause"]
    assert end != "exit 1" or "No space left on device" in rig.verdict()["cause"]
    assert remains(rig) == []


def test_term_before_the_image_is_unpacked_ends_with_143(rig: Rig, squash: Path) -> None:
    (rig.root / "bin" / "enroot").unlink()
    (rig.root / "bin" / "enroot").write_text('#!/bin/bash\necho $$ > "$FAKE/container.pid"; exec sleep 20\n')
    (rig.root / "bin" / "enroot").chmod(0o755)
    with running(rig, **chosen(rig)) as process:
        terminate(process)

    assert process.returncode == 143


def test_a_stopped_unpack_leaves_nothing(rig: Rig, squash: Path) -> None:
    rig.fake("create", 'echo $$ > "$FAKE/container.pid"; sleep 20')
    with running(rig, **chosen(rig)) as process:
        terminate(process)

    assert process.returncode == 143
    assert not lives(int(rig.faked("container.pid")))
    assert remains(rig) == []


def old(rig: Rig, *names: str) -> None:
    """Make unpacked images in the store, each used a second before the last."""
    store(rig).mkdir(mode=0o700, exist_ok=True)
    for age, name in enumerate(names):
        (store(rig) / name / "opt").mkdir(parents=True)
        (store(rig) / f"{name.removesuffix('.new')}.lock").touch()
        os.utime(store(rig) / f"{name.removesuffix('.new')}.lock", (1000 - age, 1000 - age))


def test_the_images_used_last_are_kept_and_those_in_use(rig: Rig, squash: Path) -> None:
    names = [letter * 64 for letter in "bcdef"]
    old(rig, *names, f"{'7' * 64}.new", f"{'8' * 64}.once-1")
    (store(rig) / names[0] / "opt").chmod(0o500)

    with subprocess.Popen(["flock", "--shared", str(store(rig) / f"{names[3]}.lock"), "sleep", "20"]) as user:
        wait_for_lock(store(rig) / f"{names[3]}.lock")
        assert run_chosen(rig).returncode == 0
        user.kill()

    assert {path.name[0] for path in store(rig).iterdir() if path.is_dir()} == {"b", "c", "e", hex_of(squash)[0]}
    assert not [path for path in store(rig).iterdir() if ".once-" in path.name or path.name.endswith(".new")]


def wait_for_lock(file: Path) -> None:
    while subprocess.run(["flock", "--nonblock", file, "true"], check=False).returncode == 0:
        pass


def test_a_store_that_others_can_write_is_refused(rig: Rig, squash: Path) -> None:
    store(rig).mkdir()
    store(rig).chmod(0o777)

    assert run_chosen(rig, VERLJOB_SHARED_FOLDERS="1").returncode == 77
    assert not calls(rig, "create") if (rig.root / "fake" / "enroot.argv").exists() else True


def test_another_file_or_folder_is_refused(rig: Rig, squash: Path) -> None:
    (rig.root / "verl.tar").write_text("an archive")
    for image in (rig.root / "verl.tar", rig.work):
        assert run_chosen(rig, VERLJOB_IMAGE=str(image)).returncode == 66
        assert "it is not a squashfs" in rig.verdict()["cause"]
        assert "docker://REGISTRY/NAME@sha256:" in rig.verdict()["fix"]


def test_an_image_without_the_toolkit_is_refused(rig: Rig, squash: Path) -> None:
    rig.fake("foreign", "")

    assert run_chosen(rig).returncode == 64
    assert "/opt/verljob/entrypoint.sh" in rig.verdict()["cause"]


ERRORS = {
    "[ERROR] No such file or directory: /data/x": "No such file or directory: /data/x",
    "enroot-mount: failed to mount: /nosuch at /r": "enroot-mount: failed to mount: /nosuch at /r",
    "nvidia-container-cli: detection error\n[ERROR] /etc/enroot/hooks.d/98-nvidia.sh exited with return code 1": (
        "nvidia-container-cli: detection error; /etc/enroot/hooks.d/98-nvidia.sh exited with return code 1"
    ),
}  # messages of 4.1.2


@pytest.mark.parametrize(("error", "cause"), ERRORS.items())
def test_a_client_that_starts_nothing_is_reported_with_its_error(
    rig: Rig, squash: Path, error: str, cause: str
) -> None:
    rig.fake("enroot.error", f"{error}\n")

    assert run_chosen(rig).returncode == 69
    assert rig.verdict()["cause"] == f"enroot did not start the container on n1: {cause}"
    assert remains(rig) == []


@pytest.mark.parametrize(
    "container", ["exit 1", 'printf . > "$FOLDER/out/pulse"; sleep 1.5; echo "[ERROR] mine" >&2; exit 1']
)
def test_a_programs_own_1_is_not_the_clients(rig: Rig, squash: Path, container: str) -> None:
    rig.fake("container", container)

    assert run_chosen(rig).returncode == 76
    assert rig.verdict()["cause"] == "the container on n1 ended with 1 and left no verdict"


def test_what_a_node_lacks_is_named(rig: Rig, squash: Path) -> None:
    blank = rig.root / "a b"
    blank.mkdir()
    assert run_chosen(rig, VERLJOB_LOCAL=str(blank)).returncode == 64
    assert "enroot cannot use a folder with a blank" in rig.verdict()["cause"]

    rig.fake("no_namespaces", "")
    assert run_chosen(rig).returncode == 69
    assert "cannot make user namespaces on n1" in rig.verdict()["cause"]

    (rig.root / "bin" / "enroot").unlink()
    assert run_chosen(rig).returncode == 69
    assert "there is no enroot on n1" in rig.verdict()["cause"]


CHILD = '(trap "" TERM; exec setsid sleep 300) > /dev/null 2>&1 & echo $! > "$FAKE/child.pid"\n'


@pytest.fixture
def leaver(rig: Rig) -> str:
    """A container whose child has left its session."""
    (rig.root / "bin" / "setsid").symlink_to(str(shutil.which("setsid")))
    return CHILD


@pytest.mark.parametrize("container", [STAYS, STAYS_DEAF], ids=["that obeys", "deaf to TERM"])
def test_term_ends_the_container_and_a_child_that_left_it(rig: Rig, squash: Path, leaver: str, container: str) -> None:
    with running(rig, leaver + container, **chosen(rig)) as process:
        terminate(process)

    assert process.returncode == 143
    assert not lives(int(rig.faked("child.pid")))
    assert not lives(int(rig.faked("container.pid")))
    assert remains(rig) == []


def test_the_children_of_a_killed_client_are_killed_and_no_other_process(rig: Rig, squash: Path, leaver: str) -> None:
    rig.fake("container", f"{leaver}sleep 0.2; kill -KILL $$")

    with subprocess.Popen(["sleep", "300"]) as mine:
        done = run_chosen(rig)
        assert lives(mine.pid)
        mine.kill()

    assert done.returncode == 76
    assert not lives(int(rig.faked("child.pid")))
    assert remains(rig) == []


def test_the_sweep_kills_what_a_killed_node_sh_left(rig: Rig, squash: Path, leaver: str) -> None:
    with running(rig, leaver + STAYS_DEAF, **chosen(rig)) as killed:
        killed.kill()
    assert lives(int(rig.faked("container.pid")))

    done = rig.run("bash", str(CHECKOUT / "slurm" / "node.sh"), "sweep", **rig.step_environment(**chosen(rig)))

    assert done.returncode == 0, done.stderr
    assert not lives(int(rig.faked("container.pid")))
    assert not lives(int(rig.faked("child.pid")))
    assert remains(rig) == []


@pytest.fixture
def nsenter(rig: Rig) -> None:
    """Let nsenter print its arguments."""
    program = rig.root / "bin" / "nsenter"
    program.write_text('#!/bin/bash\nprintf "%s " "$@"\n')
    program.chmod(0o755)


@pytest.mark.usefixtures("nsenter")
def test_a_command_enters_the_container(rig: Rig, squash: Path) -> None:
    script = f'runtime::exec_argv verljob-{os.getuid()}-20-1-0 ray status && "${{RUNTIME_ARGV[@]}}"'
    libraries = "common/log common/verdict runtime/runtime"
    with running(rig, **chosen(rig)) as process:
        done = rig.source(libraries, script, VERLJOB_RUNTIME="enroot")
        own = rig.faked("container.pid").strip()
        terminate(process)

    flags = "--preserve-credentials --user --mount"  # an account cannot enter the node's PID namespace
    assert done.stdout == f"{flags} --target {own} /bin/bash /run/verljob/environment ray status ", done.stderr
    ended = rig.source(libraries, script, VERLJOB_RUNTIME="enroot")
    assert (ended.returncode, "no container with " in ended.stderr) == (1, True)


@pytest.mark.usefixtures("nsenter")
def test_ray_debug_enters_the_container(rig: Rig, squash: Path) -> None:
    with running(rig, **chosen(rig)) as process:
        script = "VERLJOB_RUNTIME=enroot launch::_print_debugger 30003 n1"
        line = rig.source("launch/main", script, VERLJOB_DEBUG="legacy").stdout.splitlines()[0]
        done = rig.run(*shlex.split(line.partition("--nodelist=n1 ")[2]))
        own = rig.faked("container.pid").strip()
        terminate(process)

    assert done.stdout.endswith(f"--target {own} /bin/bash /run/verljob/environment ray debug "), done.stderr


def test_an_image_of_a_registry_is_imported_and_unpacked_once_a_node(rig: Rig, registry: str) -> None:
    for image in (registry, f"docker://{registry}", f"{NAME}:1@{DIGEST}"):
        done = run_chosen(rig, VERLJOB_IMAGE=image)
        assert done.returncode == 0, done.stdout

    assert [call[-1] for call in calls(rig, "import")] == [f"docker://hub.example#team/verl.cpu:{DIGEST}"]
    assert len(calls(rig, "create")) == 1
    assert f"VERLJOB_IMAGE_DIGEST={DIGEST}\n" in rig.faked("run.env")
    assert remains(rig) == []


def test_with_a_shared_store_an_image_is_imported_once_for_all_nodes(rig: Rig, registry: str) -> None:
    for node_id, local in enumerate((rig.root / "local", rig.home)):
        done = run_chosen(rig, node_id, VERLJOB_IMAGE_STORE=str(rig.root / "store"), VERLJOB_LOCAL=str(local))
        assert done.returncode == 0, done.stdout

    assert (len(calls(rig, "import")), len(calls(rig, "create"))) == (1, 2)


@pytest.mark.parametrize("image", [f"team/verl.cpu@{DIGEST}", f"docker.io/team/verl.cpu@{DIGEST}"])
def test_a_name_without_a_registry_is_docker_hubs(rig: Rig, registry: str, image: str) -> None:
    rig.fake("registry", f"registry-1.docker.io/team/verl.cpu@{DIGEST}\n")

    assert run_chosen(rig, VERLJOB_IMAGE=image).returncode == 0


@pytest.mark.parametrize("image", ["verl.cpu:latest", f"{NAME}:1", f"a/$(touch ran)@{DIGEST}"])
def test_a_reference_without_a_digest_is_refused(rig: Rig, registry: str, image: str) -> None:
    assert run_chosen(rig, VERLJOB_IMAGE=image).returncode == 66
    assert "by their digest only" in rig.verdict()["cause"]
    assert not calls(rig, "import")
    assert not (rig.work / "ran").exists()


def test_a_failed_import_is_reported_and_leaves_nothing(rig: Rig, registry: str) -> None:
    rig.fake("registry", "")

    assert run_chosen(rig, TMPDIR=str(rig.home)).returncode == 66
    assert "returned error code: 404 Not Found" in rig.verdict()["cause"]
    assert ".config/enroot/.credentials" in rig.verdict()["fix"]
    assert not list(rig.home.glob("verljob-pull.*"))
    assert remains(rig) == []


def log_in(rig: Rig, login: str, host: str = "hub.example") -> None:
    (rig.root / "bin" / "jq").symlink_to(str(shutil.which("jq")))
    (rig.home / ".docker").mkdir()
    auth = base64.b64encode(login.encode()).decode()
    (rig.home / ".docker" / "config.json").write_text(
        json.dumps({"auths": {"other.example": {"auth": "eDp5"}, host: {"auth": auth}}})
    )


def test_the_login_of_docker_is_used_and_is_in_no_command(rig: Rig, registry: str) -> None:
    log_in(rig, f"me:{SECRET}")

    done = run_chosen(rig)

    assert done.returncode == 0, done.stdout
    assert (
        rig.faked("credentials")
        == f"machine hub.example login me password {SECRET}\ndefault login me password {SECRET}\n"
    )
    assert SECRET not in rig.faked("enroot.argv") + done.stdout


def test_a_login_of_enroot_is_preferred(rig: Rig, registry: str) -> None:
    log_in(rig, "me:docker")
    folder = rig.home / ".config" / "enroot"
    folder.mkdir(parents=True)
    (folder / ".credentials").write_text("machine hub.example login me password enroot\n")

    assert run_chosen(rig).returncode == 0
    assert rig.faked("credentials") == "machine hub.example login me password enroot\n"


@pytest.mark.parametrize("password", ["$(touch ran)", "$HOME", "a b", "a\nmachine evil.example", 'a"b', ""])
def test_a_password_that_enroot_would_run_or_misread_is_not_used(rig: Rig, registry: str, password: str) -> None:
    log_in(rig, f"me:{password}")

    assert "it is not used" in run_chosen(rig).stdout
    assert not (rig.root / "fake" / "credentials").exists()


def test_another_hosts_login_is_not_sent(rig: Rig, registry: str) -> None:
    log_in(rig, "me:secret", host="hub.example.evil")

    assert run_chosen(rig).returncode == 0
    assert not (rig.root / "fake" / "credentials").exists()


def test_if_a_signature_is_required_a_reference_exits_with_77(rig: Rig, registry: str) -> None:
    assert run_chosen(rig, VERLJOB_REQUIRE_SIGNATURE="/key.pub").returncode == 77
    assert "enroot does not compare the manifest" in rig.verdict()["cause"]
    assert not calls(rig, "import")


def test_if_a_signature_is_required_the_file_is_unpacked_for_the_job_alone(rig: Rig, squash: Path) -> None:
    assert run_chosen(rig).returncode == 0
    changed = store(rig) / hex_of(squash) / "opt" / "verljob" / "entrypoint.sh"
    changed.write_text("changed by a job")

    done = run_chosen(rig, VERLJOB_REQUIRE_SIGNATURE="/key.pub", VERLJOB_IMAGE_SHA256=hex_of(squash))

    assert done.returncode == 0, done.stdout
    assert len(calls(rig, "create")) == 2
    assert any(word.startswith(f"{hex_of(squash)}.once-") for word in started(rig))
    assert remains(rig) == []
    assert run_chosen(rig, VERLJOB_REQUIRE_SIGNATURE="/key.pub", VERLJOB_IMAGE_SHA256="b" * 64).returncode == 77
    assert remains(rig) == []
