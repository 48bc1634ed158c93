"""The images under test: built here when they are not yet, which the layer cache makes quick."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

import pytest
import standin
from docker import DockerClient

from images import base as debian
from images import build, engine
from images.build import Site
from images.catalog import Catalog
from images.lock import LOCKS
from images.spec import ImageSpec

CATALOG = Catalog.read()


@pytest.fixture(scope="session", autouse=True)
def _with_docker(docker_client: str) -> None:
    """Every test here uses it."""


@pytest.fixture(scope="session")
def daemon() -> Iterator[DockerClient]:
    client = engine.daemon()
    yield client
    client.close()
    engine.daemon.cache_clear()


def small(spec: ImageSpec, **more: str) -> ImageSpec:
    """The variant with Ray's and verl's own packages alone, verl without the gigabyte that it pulls."""
    installs = {"verl": spec.installs["verl"], "ray": spec.installs["ray"], **more}
    spec = replace(spec, installs=installs, extras={}, imports=["torch", "ray", "verl"])
    return replace(spec, without_deps=["verl"], tolerates=["verl:.*"])


@pytest.fixture(scope="session")
def build_on_standin(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Build a small set of a variant on its stand-in, or on what was built there, with other packages more; its ID.

    All variants are built at once to begin with, and nothing twice.
    """

    @cache
    def make(variant: str, base: str = "", **more: str) -> str:
        spec = small(CATALOG.variants[variant], **more)
        ray = [line for line in (LOCKS / f"{variant}.txt").read_text().split() if line.startswith("ray==")]
        lock = tmp_path_factory.mktemp(variant) / "lock.txt"
        lock.write_text("\n".join(ray))
        tag = f"verljob-test-{variant}:{'-'.join(more) or 'plain'}"
        return build.build(spec, Site.here(), [tag], from_base=base or standin.ensure(variant), lock=lock)

    debian.ensure()
    with ThreadPoolExecutor() as pool:
        list(pool.map(make, standin.STUBS))
    return make
