"""Fixtures of image and cluster tests. SIGINT and SIGTERM end a run through its fixtures, which clean up."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from images.builds import build
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.engine import client as engine_client

# Also SIGINT: a shell starts background tasks with SIGINT ignored, and Python keeps that.
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.default_int_handler)


@pytest.fixture(scope="session")
def docker_client() -> Iterator[str]:
    """Set VERLJOB_DOCKER to the client that can use BuildKit; a missing engine is an error, not a skip."""
    with pytest.MonkeyPatch.context() as patch:
        client = engine_client.choose().client
        patch.setenv("VERLJOB_DOCKER", client)
        yield client


@pytest.fixture(scope="session")
def cpu_image(docker_client: str) -> str:
    """Return the reference of this checkout's verl.cpu, built if it is missing or an input changed."""
    catalog = Catalog.read()
    variant = catalog.find("cpu")
    tags = catalog.names(variant)
    build.build(build.BuildRequest(variant, tags), Site.read())
    return tags[0]
