"""`invoke push` against a real registry, which pytest-docker starts from the rehearsal cluster's own image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from docker import DockerClient

from images.catalog.catalog import Catalog
from images.engine import base_image
from images.engine.client import choose
from images.errors import NotBuilt, PushFailed
from images.registry import push

CATALOG = Catalog.read()
SPEC = replace(CATALOG.find("cpu"), name="pushed")  # no variant's default: the local `latest` is not changed


@pytest.fixture
def built(daemon: DockerClient) -> Iterator[str]:
    """A small image with the name of the variant's build."""
    name = f"{SPEC.repository}:{SPEC.tag}"
    daemon.images.get(base_image.ensure()).tag(name)
    yield name
    daemon.images.remove(name)


def test_push_returns_the_digest_that_the_registry_has(daemon: DockerClient, registry: str, built: str) -> None:
    pushing = push.Push.from_flags(SPEC, CATALOG, f"{registry}/team")
    pushed = pushing.tag(pushing.upload())

    reference = f"{registry}/team/verl.cpu:0.9.1-pushed"
    assert list(pushed) == [reference]
    assert daemon.images.get_registry_data(reference).id == pushed[reference]
    assert [name for name in daemon.images.get(built).tags if name.startswith(registry)] == [reference]
    daemon.images.remove(reference)


def test_missing_image_is_not_pushed_and_the_fix_is_named(registry: str) -> None:
    with pytest.raises(NotBuilt, match=r"verl\.cpu:0\.9\.1-pushed is not on this machine.*invoke build"):
        push.Push.from_flags(SPEC, CATALOG, registry)


def test_unreachable_registry_fails_with_dockers_output(daemon: DockerClient) -> None:
    reference = "127.0.0.1:1/nothing:1"
    daemon.images.get(base_image.ensure()).tag(reference)

    with pytest.raises(PushFailed, match=r"(?s)is the registry up.*refused"):
        push.push_references(choose(), [reference], pause_s=0.01)[reference]
    daemon.images.remove(reference)
