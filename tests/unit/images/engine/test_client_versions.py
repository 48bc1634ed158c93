"""What a docker client said counts while the client, its plugins and its configuration stay."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from images.engine import client_versions

SAID = {"version": "20.10.24", "buildx": False}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program as a client, with a configuration and no plugin."""
    shutil.copy(os.path.realpath("/bin/true"), tmp_path / "docker")
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(client_versions, "PLUGINS", [str(tmp_path / "plugins")])
    return tmp_path


def known(place: Path) -> object:
    return client_versions.known(str(place / "docker"), {"DOCKER_CONFIG": str(place)}, place / "kept")


def keep(place: Path) -> None:
    client_versions.keep(str(place / "docker"), {"DOCKER_CONFIG": str(place)}, SAID, place / "kept")


def test_a_client_is_not_asked_again(place: Path) -> None:
    assert known(place) == {}
    keep(place)
    assert known(place) == SAID


def test_several_clients_are_kept(place: Path) -> None:
    keep(place)
    shutil.copy(place / "docker", place / "other")
    client_versions.keep(str(place / "other"), {"DOCKER_CONFIG": str(place)}, {"version": "28"}, place / "kept")

    assert known(place) == SAID


def another_client(place: Path) -> None:
    shutil.copy(place / "docker", place / "new")
    (place / "new").replace(place / "docker")


def a_plugin_comes(place: Path) -> None:
    (place / "plugins").mkdir()
    (place / "plugins/docker-buildx").touch()


def a_plugin_of_the_users_comes(place: Path) -> None:
    (place / "cli-plugins").mkdir()
    (place / "cli-plugins/docker-buildx").touch()


def other_folders_of_plugins(place: Path) -> None:
    (place / "config.json").write_text('{"cliPluginsExtraDirs": ["/opt"]}')


def a_script_in_its_place(place: Path) -> None:
    (place / "docker").write_text("#!/bin/sh\n")


def the_client_goes(place: Path) -> None:
    (place / "docker").unlink()


def what_is_kept_is_cut_off(place: Path) -> None:
    (place / "kept").write_text("{")


@pytest.mark.parametrize(
    "mutate",
    [
        another_client,
        a_plugin_comes,
        a_plugin_of_the_users_comes,
        other_folders_of_plugins,
        a_script_in_its_place,
        the_client_goes,
        what_is_kept_is_cut_off,
    ],
)
def test_what_may_change_the_answer_has_the_client_asked_again(mutate: Callable[[Path], None], place: Path) -> None:
    keep(place)
    assert known(place) == SAID

    mutate(place)

    assert known(place) == {}


@pytest.mark.parametrize("mutate", [a_script_in_its_place, other_folders_of_plugins])
def test_what_cannot_be_told_by_looking_is_not_kept(mutate: Callable[[Path], None], place: Path) -> None:
    mutate(place)
    keep(place)

    assert known(place) == {}
