"""Images of the platform cpu have what the catalog lists, and are small."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

import pytest
from docker import DockerClient
from docker.errors import ContainerError
from packaging.utils import canonicalize_name

from images.contents.table import space
from tests.image.inherited.conftest import Subject
from tests.image.inherited.inside import output_of

HOLDS_FOR = "cpu"


@pytest.fixture(scope="module")
def packages(daemon: DockerClient, subject: Subject) -> dict[str, str]:
    listed = json.loads(output_of(daemon, subject.image, "pip", "list", "--format", "json"))
    return {canonicalize_name(package["name"]): package["version"] for package in listed}


def test_installed_versions_are_the_pins(packages: dict[str, str], subject: Subject) -> None:
    pins = {canonicalize_name(name): version for name, version in subject.variant.installs.items()}

    assert {name: packages[name].split("+")[0] for name in pins} == pins


def test_torch_is_the_cpu_build_and_no_nvidia_package_is_installed(packages: dict[str, str], subject: Subject) -> None:
    assert packages["torch"].endswith("+cpu")
    assert not [name for name in packages if re.match("nvidia|cuda|triton", name)]


def test_the_python_version_is_the_catalogs(daemon: DockerClient, subject: Subject) -> None:
    assert output_of(daemon, subject.image, "python3", "--version").startswith(f"Python {subject.variant.python}.")


def test_pip_finds_no_conflict(daemon: DockerClient, subject: Subject) -> None:
    output = output_of(daemon, subject.image, "bash", "-c", "pip check; exit 0")  # it fails if there is a conflict
    pairs = [pair.split(":") for pair in subject.variant.tolerates]
    known = [re.compile(r"{} \S+ (has requirement|requires) {}\b".format(*pair)) for pair in pairs]

    unknown = [line for line in output.splitlines() if not any(pattern.match(line) for pattern in known)]
    assert unknown in ([], ["No broken requirements found."])


def test_any_uid_can_import_verl_with_the_cpu_platform_and_both_packages(
    daemon: DockerClient, subject: Subject
) -> None:
    program = (
        "import os, verl, verl_cpu, verl_node\n"
        "from verl.plugin.platform import get_platform\n"
        "print(os.getuid(), verl.__version__, get_platform().device_name)"
    )

    assert output_of(daemon, subject.image, "python3", "-c", program).split()[-3:] == [
        "41234",
        subject.variant.installs["verl"],
        "cpu",
    ]


def test_verls_sockets_are_in_the_tmpdir_of_a_job_that_has_one(daemon: DockerClient, subject: Subject) -> None:
    program = (
        "import os, tempfile\n"
        "os.environ.update(TMPDIR=tempfile.mkdtemp(), VERL_USE_EXTERNAL_MODULES='verl_node.training.ipc_sockets')\n"
        "import verl, zmq\n"
        "trainer, engine = zmq.Context.instance().socket(zmq.REQ), zmq.Context.instance().socket(zmq.REP)\n"
        "handle = 'ipc:///tmp/rl-colocate-zmq-01000000-replica-0-rank-0.sock'\n"
        "trainer.bind(handle), engine.connect(handle)\n"
        "trainer.send_pyobj('weights')\n"
        "print(engine.recv_pyobj(), os.listdir(os.environ['TMPDIR']), os.path.exists(handle[len('ipc://'):]))"
    )

    output = output_of(daemon, subject.image, "python3", "-c", program)
    assert output.splitlines()[-1] == "weights ['rl-colocate-zmq-01000000-replica-0-rank-0.sock'] False"


def test_any_uid_of_group_0_has_a_home_folder_and_a_name(daemon: DockerClient, subject: Subject) -> None:
    program = (
        "import getpass, os, pathlib; pathlib.Path.home().joinpath('x').touch(); print(getpass.getuser(), os.getgid())"
    )

    output = daemon.containers.run(subject.image, ["python3", "-c", program], user="12345:0", remove=True)

    assert output.decode() == "user12345 0\n"


@pytest.fixture
def gpu(tmp_path: Path) -> str:
    """Return the mount of a host device, in place of /dev/kfd, whose group is unknown in the image."""
    device = tmp_path / "kfd"
    os.mknod(device, stat.S_IFCHR | 0o660, os.makedev(1, 5))  # the same device as /dev/zero
    os.chown(device, 0, 4109)
    device.chmod(0o660)
    return f"{device}:/dev/kfd:rw"


OPEN = "head -c 1 /dev/kfd | wc -c; id -u; id -G; id -un; echo $HOME"


def test_root_can_run_as_an_account_with_the_groups_of_the_hosts_gpus(
    daemon: DockerClient, subject: Subject, gpu: str
) -> None:
    output = daemon.containers.run(
        subject.image, ["bash", "-c", OPEN], devices=[gpu], environment={"VERLJOB_RUN_AS": "12345"}, remove=True
    )

    assert output.decode().splitlines() == ["1", "12345", "0 4109", "user12345", "/home/user12345"]


def test_a_message_shows_the_missing_group_of_the_gpus(daemon: DockerClient, subject: Subject, gpu: str) -> None:
    without_group, with_group = (
        daemon.containers.run(
            subject.image, ["true"], devices=[gpu], user="12345:0", group_add=groups, stderr=True, remove=True
        ).decode()
        for groups in ([], [4109])
    )

    assert without_group == "entrypoint: uid 12345 may not open /dev/kfd: start the container with --group-add 4109\n"
    assert with_group == ""


def test_pip_in_the_image_cannot_replace_torch(daemon: DockerClient, subject: Subject) -> None:
    torch = subject.variant.installs["torch"]
    with pytest.raises(ContainerError) as error:
        output_of(daemon, subject.image, "pip", "install", "--no-index", "--dry-run", f"torch!={torch}")

    assert "ResolutionImpossible" in str(error.value)
    assert output_of(daemon, subject.image, "bash", "-c", 'cat "$PIP_CONSTRAINT"').split() == [f"torch=={torch}+cpu"]


def test_the_image_is_small_and_its_size_is_itemized(daemon: DockerClient, subject: Subject) -> None:
    size = daemon.images.get(subject.image).attrs["Size"]
    table = space(subject.image)

    assert size < 3e9
    assert re.search(r"^ *\d{3} MB  pip install .*torch==", table, re.MULTILINE)
    assert re.search(r"^ *\d{3} MB  torch$", table, re.MULTILINE)
