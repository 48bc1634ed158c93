"""Every image behaves as expected as a container, and its labels describe it."""

from __future__ import annotations

import json
import time

import pytest
from docker import DockerClient
from docker.errors import ContainerError

from images.context.render import revision
from tests.image.inherited.conftest import Subject
from tests.image.inherited.inside import NOBODY, output_of

HOLDS_FOR = "every"
MAX_LAYERS = 8


def test_any_command_runs_unchanged_with_its_exit_code(daemon: DockerClient, subject: Subject) -> None:
    assert output_of(daemon, subject.image, "bash", "-c", "echo hello").strip() == "hello"
    with pytest.raises(ContainerError) as error:
        output_of(daemon, subject.image, "bash", "-c", "exit 7")
    assert error.value.exit_status == 7


def test_pid_1_is_an_init_that_forwards_sigterm_to_all_processes(daemon: DockerClient, subject: Subject) -> None:
    # A shell as PID 1 would ignore SIGTERM; children of the command get it, too (-g).
    program = "trap 'exit 5' TERM; sleep 1000 & echo ready $(cat /proc/1/comm); wait"
    container = daemon.containers.run(subject.image, ["bash", "-c", program], detach=True, user=NOBODY)
    try:
        deadline = time.monotonic() + 30
        while b"ready" not in container.logs() and time.monotonic() < deadline:
            time.sleep(0.1)
        killed = time.monotonic()
        container.kill("SIGTERM")
        result = container.wait(timeout=20)

        assert container.logs().decode().strip() == "ready tini"
        assert result["StatusCode"] == 5
        assert time.monotonic() - killed < 10
    finally:
        container.remove(force=True)


def test_the_default_command_starts_a_node(daemon: DockerClient, subject: Subject) -> None:
    config = daemon.images.get(subject.image).attrs["Config"]

    assert config["Entrypoint"] == ["/usr/bin/tini", "-g", "--", "/opt/verljob/entrypoint.sh"]
    assert config["Cmd"] == ["node"]


def test_labels_and_image_json_agree(daemon: DockerClient, subject: Subject) -> None:
    labels = daemon.images.get(subject.image).labels
    manifest = json.loads(output_of(daemon, subject.image, "cat", "/opt/verljob/image.json"))

    assert {name.lower(): version for name, version in manifest["pins"].items()} == {
        name.removeprefix("verljob.pin."): value for name, value in labels.items() if name.startswith("verljob.pin.")
    }
    assert manifest["pins"] == subject.variant.pins
    assert labels["verljob.state"].startswith(manifest["state"]["kind"])
    assert manifest["template"] == labels["verljob.template"] == revision(subject.variant)
    assert manifest["toolkit"] == labels["verljob.toolkit"]
    assert manifest["base"] == labels["verljob.base"]
    assert labels["verljob.base.id"].startswith("sha256:")


def test_no_file_or_setting_of_the_building_machine_is_in_the_image(daemon: DockerClient, subject: Subject) -> None:
    search = "find /run/secrets /root/.cache /etc/pip.conf -type f -size +0 2>/dev/null || true"
    listing = output_of(daemon, subject.image, "bash", "-c", search, user="0")
    history = daemon.images.get(subject.image).history()

    assert listing == ""
    assert not [layer for layer in history if "index-url" in layer["CreatedBy"]]


def test_any_uid_can_import_the_toolkit_and_verl(daemon: DockerClient, subject: Subject) -> None:
    program = (
        "import importlib.metadata as m, os, verl_node\n"
        "print(os.getuid(), os.getgid(), verl_node.__path__[0], m.version('verl'))"
    )

    output = output_of(daemon, subject.image, "python3", "-c", program).split()
    assert output == [*NOBODY.split(":"), "/opt/verljob/python/verl_node", subject.variant.installs["verl"]]


def test_an_image_has_at_most_eight_layers_above_its_base(daemon: DockerClient, subject: Subject) -> None:
    image = daemon.images.get(subject.image)
    base = daemon.images.get(image.labels["verljob.base.id"])
    layers, below = image.attrs["RootFS"]["Layers"], base.attrs["RootFS"]["Layers"]

    assert layers[: len(below)] == below
    assert len(layers) - len(below) <= MAX_LAYERS
