"""The rehearsal cluster's own commands, with the two Composes that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from slurm.errors import CommandFailed, EngineMissing, SlurmError
from slurm.testbed import MAX_NODES, Cluster, compose, exported_settings


def fake(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("VERLJOB_DOCKER", raising=False)
    return tmp_path


def test_the_plugin_is_taken_where_it_is(path: Path) -> None:
    fake(path, "docker", "exit 0")
    fake(path, "docker-compose", "exit 0")

    assert compose.compose_command() == ["docker", "compose"]


def test_without_the_plugin_docker_compose_is_taken(path: Path) -> None:
    fake(path, "docker", "exit 1")
    fake(path, "docker-compose", "exit 0")

    assert compose.compose_command() == [f"{path}/docker-compose"]


def test_without_either_it_is_said_what_to_install(path: Path) -> None:
    with pytest.raises(EngineMissing, match="docker-compose"):
        compose.compose_command()


def test_a_command_that_fails_is_told_with_its_last_words(path: Path) -> None:
    fake(path, "docker", "echo no space left on device; exit 3")

    with pytest.raises(CommandFailed, match=r"(?s)ended with 3.*no space left") as failure:
        compose.build_images("base")

    assert failure.value.code == 3


def test_somebody_elses_prune_is_waited_for(path: Path, tmp_path: Path) -> None:
    fake(
        path,
        "docker",
        f'case "$2" in prune) [ ! -s {tmp_path}/tried ] || exit 0; echo x > {tmp_path}/tried; '
        f'echo "Error: {compose.PRUNE_RUNS}"; exit 1 ;; esac',
    )

    compose.build_images("base")

    assert (tmp_path / "tried").read_text() == "x\n"


def test_as_many_nodes_are_started_as_were_asked_for() -> None:
    assert compose.up_arguments(2) == ["up", "--detach", "login", "registry", "n1", "n2"]


@pytest.mark.parametrize("nodes", [0, MAX_NODES + 1])
def test_a_cluster_has_one_to_eight_nodes(nodes: int) -> None:
    with pytest.raises(SlurmError, match="1 to 8"):
        Cluster(nodes)


def test_the_compose_file_has_every_service_that_can_be_asked_for() -> None:
    described = yaml.safe_load(compose.COMPOSE_FILE.read_text())["services"]

    assert set(described) == set(compose.services(MAX_NODES))
    assert all(described[name]["hostname"] == name for name in described)


def test_the_compose_file_reads_what_is_set_for_it_and_no_more() -> None:
    read = set(re.findall(r"\$\{(\w+)", compose.COMPOSE_FILE.read_text()))

    assert read == set(compose.environment(2)) - {"COMPOSE_HTTP_TIMEOUT"}


@pytest.mark.parametrize(("nodes", "available", "gib"), [(2, 20.0, 5), (2, 19.9, 0), (4, 20.0, 0), (4, 32.0, 5)])
def test_images_lie_in_memory_only_where_that_leaves_enough_for_training(
    nodes: int, available: float, gib: int
) -> None:
    assert compose.store_gib(nodes, available) == gib


def test_the_memory_that_is_left_is_read_as_linux_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose, "MEMINFO", tmp_path / "meminfo")
    nothing_told = compose.available_gib()
    (tmp_path / "meminfo").write_text("MemTotal:       25165824 kB\nMemAvailable:   20971520 kB\n")

    assert (nothing_told, compose.available_gib()) == (0.0, 20.0)


def test_no_node_is_privileged() -> None:
    described = yaml.safe_load(compose.COMPOSE_FILE.read_text())["services"]

    assert not any(service.get("privileged") for service in described.values())


def test_a_job_gets_the_submitters_settings_but_not_those_of_this_machine() -> None:
    given = {"VERLJOB_IMAGE": "verl.cpu:x", "VERLJOB_DOCKER": "/usr/bin/docker", "HOME": "/root"}

    assert exported_settings(given) == {"VERLJOB_IMAGE": "verl.cpu:x"}
