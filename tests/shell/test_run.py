"""./run on a machine whose commands are fakes: installations, messages, files."""

from __future__ import annotations

import pytest

from tests.support.shell.machine import TOOLS, Machine, docker


def test_fresh_checkout_gets_an_environment_and_runs_the_task_in_it(machine: Machine) -> None:
    done = machine.run("render", "--platform", "cpu")

    assert done.returncode == 0, done.stderr
    assert machine.calls("venv") == [f"venv {machine.checkout}/.venv"]
    assert [line.split()[-1] for line in machine.calls("pip")] == ["checkout"]
    assert machine.calls("invoke") == ["invoke render --platform cpu"]


def test_packages_are_installed_with_the_constraints_of_the_checkout(machine: Machine) -> None:
    machine.run("render")

    assert f"--constraint {machine.checkout}/bootstrap/constraints.txt" in machine.calls("pip")[0]


def test_second_call_installs_nothing(machine: Machine) -> None:
    machine.run("render")
    machine.run("render")

    assert (len(machine.calls("venv")), len(machine.calls("pip")), len(machine.calls("invoke"))) == (1, 1, 2)


@pytest.mark.parametrize("file_name", ["pyproject.toml", "bootstrap/constraints.txt"])
def test_changed_requirements_are_installed_again(machine: Machine, file_name: str) -> None:
    machine.run("render")
    with (machine.checkout / file_name).open("a") as file:
        file.write("# changed\n")
    machine.run("render")

    assert (len(machine.calls("venv")), len(machine.calls("pip"))) == (1, 2)


def test_environment_of_a_moved_checkout_is_made_again(machine: Machine) -> None:
    machine.run("render")
    machine.checkout = machine.checkout.rename(machine.checkout.with_name("elsewhere"))
    machine.run("render")

    assert machine.calls("venv")[-1] == f"venv {machine.checkout}/.venv"


def test_call_without_a_task_lists_the_tasks(machine: Machine) -> None:
    machine.run()

    assert machine.calls("invoke") == ["invoke --list"]


@pytest.mark.parametrize("task", ["lint", "test", "image.release"])
def test_linters_and_pytest_are_installed_for_the_tasks_that_run_them(machine: Machine, task: str) -> None:
    machine.run("render")
    machine.run(task)

    assert [line.endswith("[test]") for line in machine.calls("pip")] == [False, True]


def test_exit_code_is_that_of_the_task(machine: Machine) -> None:
    assert machine.run("demo", FAKE_CODE="7").returncode == 7


def test_root_installs_missing_packages_at_once_by_the_names_of_this_release(machine: Machine) -> None:
    machine.remove_programs("docker", "docker-compose", "debootstrap")
    installed = docker("20.10.24", buildx=False).replace("case", 'test -e "$FAKE_STATE/installed" || exit 127; case', 1)
    machine.add_program("docker", installed)
    done = machine.run("demo")

    assert done.returncode == 0, done.stderr
    names = "docker.io docker-compose debootstrap debian-archive-keyring"
    assert [line.split("--no-install-recommends ")[-1] for line in machine.calls("apt-get")][1:] == [names]
    assert "docker.io: the Docker engine" in done.stderr


@pytest.mark.parametrize(("arguments", "uid"), [(["demo"], "1000"), (["--no-install", "demo"], "0")])
def test_packages_that_may_not_be_installed_are_listed_in_one_command(
    machine: Machine, arguments: list[str], uid: str
) -> None:
    machine.remove_programs("docker", "docker-compose")
    done = machine.run(*arguments, FAKE_UID=uid)

    assert done.returncode == 69
    assert "sudo apt-get install docker.io docker-compose\n" in done.stderr
    assert "docs.docker.com/engine/install" in done.stderr
    assert not machine.calls("apt-get")


def test_missing_packages_without_apt_fail(machine: Machine) -> None:
    machine.remove_programs("docker", "docker-compose", "apt-get", "apt-cache")

    assert machine.run("demo").returncode == 69


def test_too_old_python_counts_as_missing(machine: Machine) -> None:
    machine.add_program("python3", "exit 1")
    done = machine.run("--no-install", "render")

    assert done.returncode == 69
    assert "sudo apt-get install python3-venv" in done.stderr


def test_no_install_leaves_the_environment_as_it_is(machine: Machine) -> None:
    done = machine.run("--no-install", "render")

    assert (done.returncode, machine.calls("venv"), machine.calls("pip")) == (69, [], [])
    assert f"{machine.checkout}/.venv would be made" in done.stderr


def test_task_without_containers_needs_no_engine(machine: Machine) -> None:
    machine.remove_programs("docker", "docker-compose", "dockerd", "debootstrap")

    assert machine.run("render").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "packages"),
    [
        (["build", "--platform", "cpu"], []),
        (["build", "--platform", "cpu", "--reproducible"], ["buildah"]),
        (["export", "--format", "oci-archive,squashfs"], ["skopeo", "squashfs-tools"]),
        (["export", "--format=docker-archive"], []),
        (["test"], ["buildah", "podman", "skopeo", "squashfs-tools"]),
    ],
)
def test_programs_of_a_task_are_listed_by_package(machine: Machine, arguments: list[str], packages: list[str]) -> None:
    machine.run("render")  # has made the environment
    machine.remove_programs(*TOOLS)
    done = machine.run("--no-install", *arguments)

    command = f"sudo apt-get install {' '.join(packages)}\n"
    assert (command in done.stderr) if packages else done.returncode == 0
