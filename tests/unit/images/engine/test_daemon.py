"""Queries to the daemon, over its socket and over TCP."""

from __future__ import annotations

import gc
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from images.engine import daemon
from images.errors import EngineMissing, ImageError, NotBuilt
from tests.support.images.fake_daemon import OnSocket, OnTcp
from tests.support.images.serving import serving

ID = "sha256:" + "1" * 64
IMAGE = {"Id": ID, "RepoTags": ["a/b:1", "<none>:<none>"], "Size": 7, "RootFS": {"Layers": ["sha256:2"]}}


@pytest.fixture
def empty_caches() -> Iterator[None]:
    """Answers cached per process are dropped before and after the test."""
    cached = (daemon.daemon, daemon.daemon_version, daemon.data_root)
    for each in cached:
        each.cache_clear()
    yield
    if daemon.daemon.cache_info().currsize:
        daemon.daemon().close()
    for each in cached:
        each.cache_clear()
    with warnings.catch_warnings():  # docker-py leaves a socket open that it could not connect
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(params=["socket", "tcp"])
def server(request: pytest.FixtureRequest, empty_caches: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    images: dict[str, dict[str, Any]] = {"a/b:1": IMAGE, ID: IMAGE}
    with tempfile.TemporaryDirectory() as folder:  # tmp_path may be too long for a socket
        made: Any = OnSocket(f"{folder}/s", images) if request.param == "socket" else OnTcp(images)
        host = f"unix://{folder}/s" if request.param == "socket" else f"tcp://127.0.0.1:{made.server_port}"
        with serving(made) as server:
            monkeypatch.setenv("DOCKER_HOST", host)
            yield server


def test_an_image_is_found_by_name_and_by_id_and_a_missing_one_is_reported(server: Any) -> None:
    by_name, by_id = daemon.find("a/b:1"), daemon.find(ID)

    assert by_name == by_id == daemon.Inspected(IMAGE)
    assert by_name
    assert (by_name.id, by_name.tags) == (ID, ["a/b:1"])
    assert daemon.find("a/b:2") is None
    with pytest.raises(NotBuilt, match=r"a/b:2 is not on this machine"):
        daemon.get("a/b:2")


def test_an_image_has_a_history_and_can_be_tagged(server: Any) -> None:
    image = daemon.get("a/b:1")

    image.tag("registry:5000/c/d:2")

    assert [each["CreatedBy"] for each in image.history()] == ["COPY", "FROM"]
    assert daemon.get("registry:5000/c/d:2").id == ID


def test_facts_of_the_daemon_are_queried_once(server: Any) -> None:
    for _ in range(2):
        assert (daemon.daemon_version()["Version"], daemon.architecture()) == ("20.10.24", "amd64")
        assert daemon.data_root() == Path("/var/lib/docker")

    assert server.requests.count("GET /info") == 1


def test_an_error_of_the_daemon_is_reported(server: Any) -> None:
    with pytest.raises(ImageError, match=r"answered 500: .*the disk is on fire"):
        daemon.find("broken")


@pytest.mark.usefixtures("empty_caches")
@pytest.mark.parametrize("host", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:1"])
def test_a_missing_daemon_is_reported_with_the_fix(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)

    with pytest.raises(EngineMissing, match=r"no Docker daemon answers .*Start dockerd"):
        daemon.find("a/b:1")
