"""An in-memory registry for the tests of its clients, and an engine with registry settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from images.registry import client
from images.registry.client import DOCKER_MANIFEST, Repository
from tests.support.images.fake_registry import SUBJECT, FakeRegistry, running


@pytest.fixture
def engine_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`docker info` with one registry without TLS; docker's logins are in ``tmp_path``."""
    settings = {"RegistryConfig": {"IndexConfigs": {"plain.example:5000": {"Secure": False}}}}
    monkeypatch.setattr(client, "daemon", lambda: SimpleNamespace(info=lambda: settings))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))


@pytest.fixture
def server(engine_settings: None) -> Iterator[FakeRegistry]:
    """A registry with SUBJECT as tag `1`."""
    with running() as server:
        server.keep("1", SUBJECT, DOCKER_MANIFEST)
        yield server


@pytest.fixture
def repository(server: FakeRegistry) -> Iterator[Repository]:
    with Repository(f"{server.host}/team/verl.cpu") as repository:
        yield repository
