"""Inside verl.cpu: what the catalog promises, and how it behaves as a container."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from pathlib import Path

import pytest
from docker import DockerClient
from docker.errors import ContainerError
from packaging.utils import canonicalize_name

from images.catalog import Catalog
from images.errors import NotBuilt
from images.listing import space
from images.render import revision

SPEC = Catalog.read().find("cpu")
NOBODY = "41234:41235"  # an account that no image has


def said(daemon: DockerClient, image: str, *argv: str, user: str = NOBODY) -> str:
    """What a command says on standard output, as somebody without a home."""
    output = daemon.containers.run(image, list(argv), user=user, remove=True, environment={"HOME": "/tmp"})  # noqa: S108
    return str(output.decode())


@pytest.fixture(scope="module")
def packages(daemon: DockerClient, cpu_image: str) -> dict[str, str]:
    listed = json.loads(said(daemon, cpu_image, "pip", "list", "--format", "json"))
    return {canonicalize_name(each["name"]): each["version"] for each in listed}


def test_the_versions_inside_are_the_pins(packages: dict[str, str]) -> None:
    pins = {canonicalize_name(name): version for name, version in SPEC.installs.items()}

    assert {name: packages[name].split("+")[0] for name in pins} == pins


def test_torch_is_the_cpu_build_and_nothing_of_nvidia_is_inside(packages: dict[str, str]) -> None:
    assert packages["torch"].endswith("+cpu")
    assert not [name for name in packages if re.match("nvidia|cuda|triton", name)]


def test_the_python_is_the_catalogs(daemon: DockerClient, cpu_image: str) -> None:
    assert said(daemon, cpu_image, "python3", "--version").startswith(f"Python {SPEC.python}.")


def test_pip_finds_no_conflict(daemon: DockerClient, cpu_image: str) -> None:
    assert said(daemon, cpu_image, "pip", "check").strip() == "No broken requirements found."


def test_any_uid_can_import_verl_with_the_cpu_platform_and_both_packages(daemon: DockerClient, cpu_image: str) -> None:
    program = (
        "import os, verl, verl_cpu, verl_node\n"
        "from verl.plugin.platform import get_platform\n"
        "print(os.getuid(), verl.__version__, get_platform().device_name)"
    )

    assert said(daemon, cpu_image, "python3", "-c", program).split()[-3:] == ["41234", SPEC.installs["verl"], "cpu"]


def test_any_uid_of_group_0_has_a_home_and_a_name(daemon: DockerClient, cpu_image: str) -> None:
    program = (
        "import getpass, os, pathlib; pathlib.Path.home().joinpath('x').touch(); print(getpass.getuser(), os.getgid())"
    )

    told = daemon.containers.run(cpu_image, ["python3", "-c", program], user="12345:0", remove=True)

    assert told.decode() == "user12345 0\n"


@pytest.fixture
def gpu(tmp_path: Path) -> str:
    """A device of the host that only a group may open whose number no image knows, in the place of AMD's."""
    device = tmp_path / "kfd"
    os.mknod(device, stat.S_IFCHR | 0o660, os.makedev(1, 5))  # what /dev/zero is
    os.chown(device, 0, 4109)
    device.chmod(0o660)
    return f"{device}:/dev/kfd:rw"


OPEN = "head -c 1 /dev/kfd | wc -c; id -u; id -G; id -un; echo $HOME"


def test_root_may_become_an_account_that_has_the_groups_of_the_hosts_gpus(
    daemon: DockerClient, cpu_image: str, gpu: str
) -> None:
    told = daemon.containers.run(
        cpu_image, ["bash", "-c", OPEN], devices=[gpu], environment={"VERLJOB_RUN_AS": "12345"}, remove=True
    )

    assert told.decode().splitlines() == ["1", "12345", "0 4109", "user12345", "/home/user12345"]


def test_an_account_that_lacks_the_gpus_group_is_told_its_number(
    daemon: DockerClient, cpu_image: str, gpu: str
) -> None:
    without, having = (
        daemon.containers.run(
            cpu_image, ["true"], devices=[gpu], user="12345:0", group_add=groups, stderr=True, remove=True
        ).decode()
        for groups in ([], [4109])
    )

    assert without == "entrypoint: uid 12345 may not open /dev/kfd: start the container with --group-add 4109\n"
    assert having == ""


def test_any_command_is_run_as_it_stands_with_its_exit_code(daemon: DockerClient, cpu_image: str) -> None:
    assert said(daemon, cpu_image, "bash", "-c", "echo hello").strip() == "hello"
    with pytest.raises(ContainerError) as ended:
        said(daemon, cpu_image, "bash", "-c", "exit 7")
    assert ended.value.exit_status == 7


def test_pid_1_is_an_init_that_hands_term_to_all_and_reaps(daemon: DockerClient, cpu_image: str) -> None:
    # A shell as PID 1 would ignore TERM; a child of the command gets it, too (-g).
    program = "trap 'exit 5' TERM; sleep 1000 & echo ready $(cat /proc/1/comm); wait"
    container = daemon.containers.run(cpu_image, ["bash", "-c", program], detach=True, user=NOBODY)
    try:
        deadline = time.monotonic() + 30
        while b"ready" not in container.logs() and time.monotonic() < deadline:
            time.sleep(0.1)
        asked = time.monotonic()
        container.kill("SIGTERM")
        ended = container.wait(timeout=20)

        assert container.logs().decode().strip() == "ready tini"
        assert ended["StatusCode"] == 5
        assert time.monotonic() - asked < 10
    finally:
        container.remove(force=True)


def test_an_image_starts_the_toolkits_entrypoint_as_a_node(daemon: DockerClient, cpu_image: str) -> None:
    config = daemon.images.get(cpu_image).attrs["Config"]

    assert config["Entrypoint"] == ["/usr/bin/tini", "-g", "--", "/opt/verljob/entrypoint.sh"]
    assert config["Cmd"] == ["node"]


def test_labels_and_the_file_inside_tell_the_same(daemon: DockerClient, cpu_image: str) -> None:
    labels = daemon.images.get(cpu_image).labels
    manifest = json.loads(said(daemon, cpu_image, "cat", "/opt/verljob/image.json"))

    assert {name.lower(): version for name, version in manifest["pins"].items()} == {
        name.removeprefix("verljob.pin."): value for name, value in labels.items() if name.startswith("verljob.pin.")
    }
    assert manifest["pins"] == SPEC.pins
    assert manifest["template"] == labels["verljob.template"] == revision(SPEC)
    assert manifest["toolkit"] == labels["verljob.toolkit"]
    assert manifest["base"] == labels["verljob.base"]
    assert labels["verljob.base.id"].startswith("sha256:")


def test_an_installation_inside_cannot_replace_torch(daemon: DockerClient, cpu_image: str) -> None:
    with pytest.raises(ContainerError) as refused:
        said(daemon, cpu_image, "pip", "install", "--no-index", "--dry-run", "torch!=2.13.0")

    assert "ResolutionImpossible" in str(refused.value)
    assert said(daemon, cpu_image, "bash", "-c", 'cat "$PIP_CONSTRAINT"').split() == ["torch==2.13.0+cpu"]


def test_nothing_of_the_building_machine_is_left_inside(daemon: DockerClient, cpu_image: str) -> None:
    search = "find /run/secrets /root/.cache /etc/pip.conf -type f -size +0 2>/dev/null || true"
    listing = said(daemon, cpu_image, "bash", "-c", search, user="0")
    history = daemon.images.get(cpu_image).history()

    assert listing == ""
    assert not [layer for layer in history if "index-url" in layer["CreatedBy"]]


def test_an_image_that_is_not_here_has_no_space_to_tell_of(daemon: DockerClient) -> None:
    with pytest.raises(NotBuilt, match="no-such-image:1 is not on this machine"):
        space("no-such-image:1")


def test_the_image_is_small_and_says_what_takes_its_space(daemon: DockerClient, cpu_image: str) -> None:
    size = daemon.images.get(cpu_image).attrs["Size"]
    told = space(cpu_image)

    assert size < 3e9
    assert re.search(r"^ *\d{3} MB  pip install .*torch==", told, re.MULTILINE)
    assert re.search(r"^ *\d{3} MB  torch$", told, re.MULTILINE)
