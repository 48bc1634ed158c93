"""Commands of the rehearsal cluster, with both versions of Compose."""

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


def test_nodes_have_enroot_if_its_sources_are_named(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, found = tmp_path / "sources with blank", tmp_path / "found"
    sources.mkdir()
    (sources / "enroot.tar.xz").write_text("packed")
    fake(path, "docker", f'for last; do :; done\n[ ! -e "$last/sources" ] || /bin/cat "$last/sources/"* >> {found}')
    monkeypatch.setenv("VERLJOB_SOURCES", str(sources))

    compose.build_images("base")

    assert found.read_text() == "packed" * len(compose.KINDS)
    assert not (compose.FOLDER / "sources").exists()


def test_a_folder_without_the_sources_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERLJOB_SOURCES", str(path))

    with pytest.raises(SlurmError, match=r"has no enroot\.tar\.xz"):
        compose.build_images("base")


def test_the_plugin_is_preferred(path: Path) -> None:
    fake(path, "docker", "exit 0")
    fake(path, "docker-compose", "exit 0")

    assert compose.compose_command() == ["docker", "compose"]


def test_without_the_plugin_docker_compose_is_used(path: Path) -> None:
    fake(path, "docker", "exit 1")
    fake(path, "docker-compose", "exit 0")

    assert compose.compose_command() == [f"{path}/docker-compose"]


def test_without_compose_the_error_names_the_package(path: Path) -> None:
    with pytest.raises(EngineMissing, match="docker-compose"):
        compose.compose_command()


def test_a_failed_command_is_reported_with_its_output(path: Path) -> None:
    fake(path, "docker", "echo no space left on device; exit 3")

    with pytest.raises(CommandFailed, match=r"(?s)ended with 3.*no space left") as failure:
        compose.build_images("base")

    assert failure.value.code == 3


def test_another_clients_prune_is_waited_for(path: Path, tmp_path: Path) -> None:
    fake(
        path,
        "docker",
        f'case "$2" in prune) [ ! -s {tmp_path}/tried ] || exit 0; echo x > {tmp_path}/tried; '
        f'echo "Error: {compose.PRUNE_RUNS}"; exit 1 ;; esac',
    )

    compose.build_images("base")

    assert (tmp_path / "tried").read_text() == "x\n"


def test_up_starts_the_requested_nodes() -> None:
    assert compose.up_arguments(2) == ["up", "--detach", "login", "registry", "n1", "n2"]


@pytest.mark.parametrize("nodes", [0, MAX_NODES + 1])
def test_a_cluster_has_one_to_eight_nodes(nodes: int) -> None:
    with pytest.raises(SlurmError, match="1 to 8"):
        Cluster(nodes)


def test_the_compose_file_has_every_service() -> None:
    described = yaml.safe_load(compose.COMPOSE_FILE.read_text())["services"]

    assert set(described) == set(compose.services(MAX_NODES))
    assert all(described[name]["hostname"] == name for name in described)


def test_the_compose_file_uses_exactly_the_variables_that_are_set() -> None:
    read = set(re.findall(r"\$\{(\w+)", compose.COMPOSE_FILE.read_text()))

    assert read == set(compose.environment(2)) - {"COMPOSE_HTTP_TIMEOUT"}


@pytest.mark.parametrize(("nodes", "available", "gib"), [(2, 20.0, 5), (2, 19.9, 0), (4, 20.0, 0), (4, 32.0, 5)])
def test_images_are_stored_in_memory_only_if_enough_is_left_for_training(
    nodes: int, available: float, gib: int
) -> None:
    assert compose.store_gib(nodes, available) == gib


def test_available_memory_is_read_from_meminfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose, "MEMINFO", tmp_path / "meminfo")
    without_meminfo = compose.available_gib()
    (tmp_path / "meminfo").write_text("MemTotal:       25165824 kB\nMemAvailable:   20971520 kB\n")

    assert (without_meminfo, compose.available_gib()) == (0.0, 20.0)


def test_a_node_has_named_capabilities_but_none_that_a_machine_may_lack() -> None:
    """ALL has SYS_RESOURCE in Docker 20.10, and 26 refuses to drop it where the machine lacks it."""
    services = yaml.safe_load(compose.COMPOSE_FILE.read_text())["services"]

    assert not any({"privileged", "cap_drop"} & set(service) for service in services.values())
    added = {frozenset(service["cap_add"]) for name, service in services.items() if name.startswith("n")}
    (names,) = added
    assert "SYS_ADMIN" in names
    assert not {"ALL", "SYS_RESOURCE"} & names


@pytest.mark.parametrize(
    ("debian", "images"),
    [("", "verljob-testbed"), ("bookworm", "verljob-testbed"), ("sid", "verljob-testbed-sid")],
)
def test_each_release_of_debian_has_its_own_images(debian: str, images: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERLJOB_TESTBED_DEBIAN", debian)

    assert compose.environment(2)["VERLJOB_TESTBED_IMAGES"] == images


def test_images_of_the_given_release_are_built(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERLJOB_TESTBED_DEBIAN", "trixie")
    fake(path, "docker", f'echo "$*" >> {path}/calls')

    compose.build_images("verljob-base:trixie")

    calls = (path / "calls").read_text().splitlines()
    assert [call.partition("--tag ")[2].split()[0] for call in calls if call.startswith("build ")] == [
        f"verljob-testbed-trixie-{kind}" for kind in ("login", "node", "registry")
    ]


def test_caches_of_all_releases_are_removed(path: Path) -> None:
    fake(path, "docker", f'echo "$*" >> {path}/calls')

    compose.remove_caches()

    removed = [name for call in (path / "calls").read_text().splitlines() for name in call.split() if "testbed" in name]
    assert removed == [f"{compose.images(each)}-{kind}" for each in compose.DEBIANS for kind in compose.KINDS]
    assert len(removed) == 9


def test_an_unknown_release_of_debian_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERLJOB_TESTBED_DEBIAN", "../etch")

    with pytest.raises(SlurmError, match=r"no rehearsal cluster of Debian '\.\./etch'.*bookworm, trixie, sid"):
        compose.debian()


def test_exported_settings_exclude_those_of_this_machine() -> None:
    given = {"VERLJOB_IMAGE": "verl.cpu:x", "VERLJOB_DOCKER": "/usr/bin/docker", "HOME": "/root"}
    given |= {"VERLJOB_TESTBED": "mine", "VERLJOB_TESTBED_DEBIAN": "sid"}

    assert exported_settings(given) == {"VERLJOB_IMAGE": "verl.cpu:x"}
