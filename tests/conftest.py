"""What image and cluster tests share. A test run that is asked to end still takes down what its fixtures started."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from images.builds import build
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.engine import client as engine_client

# INT too: a shell starts background tasks deaf to it, and Python then leaves it so.
for asked_to_end in (signal.SIGINT, signal.SIGTERM):
    signal.signal(asked_to_end, signal.default_int_handler)


@pytest.fixture(scope="session")
def docker_client() -> Iterator[str]:
    """Make the client that can use BuildKit the choice of all parts; a missing engine is an error, not a skip."""
    with pytest.MonkeyPatch.context() as patch:
        client = engine_client.choose().client
        patch.setenv("VERLJOB_DOCKER", client)
        yield client


@pytest.fixture(scope="session")
def cpu_image(docker_client: str) -> str:
    """A reference of this checkout's verl.cpu on this machine, built where it lacks or has changed."""
    catalog = Catalog.read()
    variant = catalog.find("cpu")
    tags = catalog.names(variant)
    build.build(build.BuildRequest(variant, tags), Site.read())
    return tags[0]
