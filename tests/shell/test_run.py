"""./run on a machine whose commands are fakes: what it installs, starts, says and leaves."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
# What run itself calls; everything else on PATH is a fake, so the machine's own docker is never seen.
REAL = ("bash", "cat", "chmod", "dirname", "mkdir", "rm", "setsid", "sleep", "tail", "touch")

TOOLS = ("buildah", "podman", "skopeo", "mksquashfs")
FAKES = {
    "id": "[[ $1 == -u ]] && echo ${FAKE_UID:-0} || echo tester",
    "apt-get": 'echo "apt-get $*" >> "$FAKE_LOG"; [[ $* != *install* ]] || touch "$FAKE_STATE/installed"',
    "apt-cache": '[[ " docker.io docker-compose debootstrap python3-venv debian-archive-keyring " == *" $2 "* ]]',
    # Makes environments whose python logs what pip and invoke are asked for.
    "python3": """case "$*" in
    *ensurepip*) exit 0 ;;
    --version) echo Python 3.11.2 ;;
    *venv*) mkdir -p "${@: -1}/bin"; cat "$FAKE_STATE/venv-python" > "${@: -1}/bin/python"
            chmod +x "${@: -1}/bin/python"; echo "venv ${@: -1}" >> "$FAKE_LOG" ;;
esac""",
    "debootstrap": "exit 0",
    "docker-compose": "exit 0",
    "dockerd": """trap 'rm "$FAKE_STATE/up"; echo "dockerd ended" >> "$FAKE_LOG"; exit 0' TERM
echo "dockerd $*" >> "$FAKE_LOG"
[[ -z ${FAKE_DOCKERD_FAILS:-} ]] || { echo "no space left on device"; exit 1; }
while [[ $1 != --pidfile ]]; do shift; done
echo $$ > "$2"; touch "$FAKE_STATE/up"
while :; do sleep 0.1; done""",
}
VENV_PYTHON = """[[ $1 != -c ]] || exit 0
echo "$2 ${*:3}" >> "$FAKE_LOG"
[[ $2 != invoke ]] || { [[ -z ${FAKE_LASTS:-} ]] || sleep 30 & wait; exit "${FAKE_CODE:-0}"; }"""


def docker(version: str, *, buildx: bool) -> str:
    """A docker client of this version; an engine answers it while the file `up` is there."""
    return f"""case "$*" in
    --version) echo "Docker version {version}, build abc" ;;
    "buildx version") {"exit 0" if buildx else "exit 1"} ;;
    "compose version") exit 1 ;;
    version*) [[ -e $FAKE_STATE/up ]] && echo 20.10.24 || {{ echo "${{FAKE_REFUSAL:-Cannot connect}}" >&2; exit 1; }} ;;
    info*) echo /var/lib/docker ;;
esac"""


class Machine:
    """A checkout in a folder with a space in its name, and a PATH of fakes."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "my checkout"
        self.bin, self.state, self.log = folder / "bin", folder / "state", folder / "log"
        for made in (self.checkout, self.bin, self.state):
            made.mkdir()
        shutil.copy(CHECKOUT / "run", self.checkout)
        shutil.copytree(CHECKOUT / "bootstrap", self.checkout / "bootstrap")
        shutil.copy(CHECKOUT / "pyproject.toml", self.checkout)
        (self.state / "venv-python").write_text(f"#!/bin/bash\n{VENV_PYTHON}\n")
        for name in REAL:
            (self.bin / name).symlink_to(str(shutil.which(name)))
        for name, body in FAKES.items():
            self.has(name, body)
        for name in TOOLS:
            self.has(name, "exit 0")
        self.has("docker", docker("20.10.24", buildx=False))
        self.engine_answers()

    def has(self, name: str, body: str, folder: Path | None = None) -> Path:
        path = (folder or self.bin) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)
        return path

    def lacks(self, *names: str) -> None:
        for name in names:
            (self.bin / name).unlink()

    def engine_answers(self, answers: bool = True) -> None:
        if answers:
            (self.state / "up").touch()
        else:
            (self.state / "up").unlink()

    def environment(self, **extra: str) -> dict[str, str]:
        return {"PATH": str(self.bin), "FAKE_LOG": str(self.log), "FAKE_STATE": str(self.state), **extra}

    def run(self, *words: str, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.checkout / "run", *words],
            env=self.environment(**extra),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd="/",
            stdin=subprocess.DEVNULL,
        )

    def did(self, word: str) -> list[str]:
        """What was called, among the lines that begin with ``word``."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if line.startswith(word)]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_fresh_checkout_gets_an_environment_and_the_task_runs_in_it(machine: Machine) -> None:
    done = machine.run("render", "--platform", "cpu")

    assert done.returncode == 0, done.stderr
    assert machine.did("venv") == [f"venv {machine.checkout}/.venv"]
    assert [line.split()[-1] for line in machine.did("pip")] == ["checkout"]
    assert machine.did("invoke") == [f"invoke --search-root {machine.checkout} render --platform cpu"]


def test_a_second_call_makes_and_installs_nothing(machine: Machine) -> None:
    machine.run("render")
    machine.run("render")

    assert (len(machine.did("venv")), len(machine.did("pip")), len(machine.did("invoke"))) == (1, 1, 2)


def test_a_changed_pyproject_is_installed_again(machine: Machine) -> None:
    machine.run("render")
    with (machine.checkout / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    machine.run("render")

    assert (len(machine.did("venv")), len(machine.did("pip"))) == (1, 2)


def test_an_environment_of_a_checkout_that_was_moved_is_made_again(machine: Machine) -> None:
    machine.run("render")
    machine.checkout = machine.checkout.rename(machine.checkout.with_name("elsewhere"))
    machine.run("render")

    assert machine.did("venv")[-1] == f"venv {machine.checkout}/.venv"


def test_no_task_lists_the_tasks(machine: Machine) -> None:
    machine.run()

    assert machine.did("invoke") == [f"invoke --search-root {machine.checkout} --list"]


@pytest.mark.parametrize("task", ["lint", "test"])
def test_the_linters_are_installed_for_the_tasks_that_run_them(machine: Machine, task: str) -> None:
    machine.run("render")
    machine.run(task)

    assert [line.endswith("[test]") for line in machine.did("pip")] == [False, True]


def test_the_exit_code_is_the_tasks(machine: Machine) -> None:
    assert machine.run("demo", FAKE_CODE="7").returncode == 7


def test_the_client_that_can_use_buildkit_is_chosen_and_said(machine: Machine) -> None:
    shadow = machine.has("docker", docker("28.2.2", buildx=False), machine.bin.parent / "first").parent
    machine.has(
        "python3", FAKES["python3"].replace("mkdir -p", 'echo "chosen $VERLJOB_DOCKER" >> "$FAKE_LOG"; mkdir -p')
    )
    done = machine.run("build", PATH=f"{shadow}:{machine.bin}")

    assert done.returncode == 0, done.stderr
    assert machine.did("chosen") == [f"chosen {machine.bin}/docker"]
    assert f"docker: {machine.bin}/docker 20.10.24, not {shadow}/docker 28.2.2" in done.stderr


def test_a_client_with_buildx_is_taken_whatever_its_version(machine: Machine) -> None:
    machine.has("docker", docker("28.2.2", buildx=True))

    assert machine.run("build").returncode == 0


def test_as_root_what_lacks_is_installed_at_once_by_the_names_that_this_release_has(machine: Machine) -> None:
    machine.lacks("docker", "docker-compose", "debootstrap")
    installed = docker("20.10.24", buildx=False).replace("case", 'test -e "$FAKE_STATE/installed" || exit 127; case', 1)
    machine.has("docker", installed)
    done = machine.run("demo")

    assert done.returncode == 0, done.stderr
    names = "docker.io docker-compose debootstrap debian-archive-keyring"
    assert [line.split("--no-install-recommends ")[-1] for line in machine.did("apt-get")][1:] == [names]
    assert "docker.io: the Docker engine" in done.stderr


@pytest.mark.parametrize(("words", "uid"), [(["demo"], "1000"), (["--no-install", "demo"], "0")])
def test_what_may_not_be_installed_is_said_exactly(machine: Machine, words: list[str], uid: str) -> None:
    machine.lacks("docker", "docker-compose")
    done = machine.run(*words, FAKE_UID=uid)

    assert done.returncode == 69
    assert "sudo apt-get install docker.io docker-compose\n" in done.stderr
    assert "docs.docker.com/engine/install" in done.stderr
    assert not machine.did("apt-get")


def test_without_apt_nothing_is_tried(machine: Machine) -> None:
    machine.lacks("docker", "docker-compose", "apt-get", "apt-cache")

    assert machine.run("demo").returncode == 69


def test_a_python_that_is_too_old_counts_as_lacking(machine: Machine) -> None:
    machine.has("python3", "exit 1")
    done = machine.run("--no-install", "render")

    assert done.returncode == 69
    assert "sudo apt-get install python3-venv" in done.stderr


def test_no_install_does_not_touch_the_environment_either(machine: Machine) -> None:
    done = machine.run("--no-install", "render")

    assert (done.returncode, machine.did("venv"), machine.did("pip")) == (69, [], [])
    assert f"{machine.checkout}/.venv would be made" in done.stderr


def test_a_task_without_containers_asks_for_no_engine(machine: Machine) -> None:
    machine.lacks("docker", "docker-compose", "dockerd", "debootstrap")

    assert machine.run("render").returncode == 0


@pytest.mark.parametrize(
    ("words", "packages"),
    [
        (["build", "--platform", "cpu"], []),
        (["build", "--platform", "cpu", "--reproducible"], ["buildah"]),
        (["export", "--format", "oci-archive,squashfs"], ["skopeo", "squashfs-tools"]),
        (["export", "--format=docker-archive"], []),
        (["test"], ["buildah", "podman", "skopeo", "squashfs-tools"]),
    ],
)
def test_what_a_task_takes_beside_the_engine_is_told_by_its_package(
    machine: Machine, words: list[str], packages: list[str]
) -> None:
    machine.run("render")  # has made the environment
    machine.lacks(*TOOLS)
    done = machine.run("--no-install", *words)

    wanted = f"sudo apt-get install {' '.join(packages)}\n"
    assert (wanted in done.stderr) if packages else done.returncode == 0


def test_an_engine_that_answers_is_left_alone(machine: Machine) -> None:
    machine.run("demo")

    assert not machine.did("dockerd")


def test_an_engine_is_started_where_none_answers_and_ends_with_the_task(machine: Machine) -> None:
    machine.engine_answers(False)
    done = machine.run("demo", VERLJOB_DOCKER_ROOT="/my data", FAKE_CODE="7")

    started, ended = machine.did("dockerd")
    assert done.returncode == 7, done.stderr
    assert started.endswith("--data-root /my data")
    assert ended == "dockerd ended"
    assert not (machine.state / "up").exists()


def test_term_ends_the_task_and_then_the_engine(machine: Machine) -> None:
    machine.engine_answers(False)
    environment = machine.environment(FAKE_LASTS="1")
    with subprocess.Popen([machine.checkout / "run", "demo"], env=environment, stdin=subprocess.DEVNULL) as running:
        deadline = time.monotonic() + 30
        while not machine.did("invoke"):
            assert time.monotonic() < deadline, "the task was never started"
            time.sleep(0.05)
        os.kill(running.pid, signal.SIGTERM)
        code = running.wait(timeout=20)

    assert code == 128 + signal.SIGTERM
    assert machine.did("dockerd")[-1] == "dockerd ended"


def test_an_engine_stays_for_a_cluster_until_that_is_taken_down(machine: Machine) -> None:
    machine.engine_answers(False)
    machine.run("testbed.up")
    stayed = (machine.state / "up").exists()
    machine.run("testbed.down")

    assert stayed
    assert machine.did("dockerd")[-1] == "dockerd ended"


def test_an_engine_that_does_not_start_is_told_with_its_last_words(machine: Machine) -> None:
    machine.engine_answers(False)
    done = machine.run("demo", FAKE_DOCKERD_FAILS="1")

    assert done.returncode == 69
    assert "no space left on device" in done.stderr


def test_an_account_that_may_not_use_the_engine_is_told_the_group(machine: Machine) -> None:
    machine.engine_answers(False)
    done = machine.run("demo", FAKE_UID="1000", FAKE_REFUSAL="permission denied while trying to connect")

    assert done.returncode == 69
    assert "usermod --append --groups docker tester" in done.stderr


def test_a_data_root_that_was_asked_for_is_not_silently_another(machine: Machine) -> None:
    done = machine.run("demo", VERLJOB_DOCKER_ROOT="/elsewhere")

    assert done.returncode == 69
    assert "/var/lib/docker" in done.stderr
