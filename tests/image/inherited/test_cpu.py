"""What holds for the images of the platform cpu: what the catalog promises, and that they are small."""

from __future__ import annotations

import json
import re

import pytest
from docker import DockerClient
from docker.errors import ContainerError
from packaging.utils import canonicalize_name

from images.listing import space
from tests.image.inherited.conftest import Subject
from tests.image.inherited.inside import said

HOLDS_FOR = "cpu"


@pytest.fixture(scope="module")
def packages(daemon: DockerClient, subject: Subject) -> dict[str, str]:
    listed = json.loads(said(daemon, subject.image, "pip", "list", "--format", "json"))
    return {canonicalize_name(each["name"]): each["version"] for each in listed}


def test_the_versions_inside_are_the_pins(packages: dict[str, str], subject: Subject) -> None:
    pins = {canonicalize_name(name): version for name, version in subject.spec.installs.items()}

    assert {name: packages[name].split("+")[0] for name in pins} == pins


def test_torch_is_the_cpu_build_and_nothing_of_nvidia_is_inside(packages: dict[str, str], subject: Subject) -> None:
    assert packages["torch"].endswith("+cpu")
    assert not [name for name in packages if re.match("nvidia|cuda|triton", name)]


def test_the_python_is_the_catalogs(daemon: DockerClient, subject: Subject) -> None:
    assert said(daemon, subject.image, "python3", "--version").startswith(f"Python {subject.spec.python}.")


def test_pip_finds_no_conflict(daemon: DockerClient, subject: Subject) -> None:
    told = said(daemon, subject.image, "bash", "-c", "pip check; exit 0")  # its complaints are what is judged
    pairs = [pair.split(":") for pair in subject.spec.tolerates]
    known = [re.compile(r"{} \S+ (has requirement|requires) {}\b".format(*pair)) for pair in pairs]

    left = [line for line in told.splitlines() if not any(each.match(line) for each in known)]
    assert left in ([], ["No broken requirements found."])


def test_any_uid_can_import_verl_with_the_cpu_platform_and_both_packages(
    daemon: DockerClient, subject: Subject
) -> None:
    program = (
        "import os, verl, verl_cpu, verl_node\n"
        "from verl.plugin.platform import get_platform\n"
        "print(os.getuid(), verl.__version__, get_platform().device_name)"
    )

    assert said(daemon, subject.image, "python3", "-c", program).split()[-3:] == [
        "41234",
        subject.spec.installs["verl"],
        "cpu",
    ]


def test_an_installation_inside_cannot_replace_torch(daemon: DockerClient, subject: Subject) -> None:
    torch = subject.spec.installs["torch"]
    with pytest.raises(ContainerError) as refused:
        said(daemon, subject.image, "pip", "install", "--no-index", "--dry-run", f"torch!={torch}")

    assert "ResolutionImpossible" in str(refused.value)
    assert said(daemon, subject.image, "bash", "-c", 'cat "$PIP_CONSTRAINT"').split() == [f"torch=={torch}+cpu"]


def test_the_image_is_small_and_says_what_takes_its_space(daemon: DockerClient, subject: Subject) -> None:
    size = daemon.images.get(subject.image).attrs["Size"]
    told = space(subject.image)

    assert size < 3e9
    assert re.search(r"^ *\d{3} MB  pip install .*torch==", told, re.MULTILINE)
    assert re.search(r"^ *\d{3} MB  torch$", told, re.MULTILINE)
