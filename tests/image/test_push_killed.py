"""A push of an image to two registries under three tags, killed at fifty points and repeated after each."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import requests
from docker import DockerClient
from docker.models.containers import Container

from images.engine.client import choose
from images.registry import referrers
from images.registry.client import Repository
from slurm.testbed import compose
from tests.support.images.interruption import Points, kill, prepared, way

POINTS = 50
TAGS = ["latest", "nightly", "team"]
NAME = "verljob-test-killed"


@pytest.fixture(scope="module")
def registries(daemon: DockerClient, registry: str) -> Iterator[list[Container]]:
    """Two empty registries."""
    image = f"{compose.images()}-registry"
    ports: dict[str, int | list[int] | tuple[str, int] | None] = {"5000/tcp": ("127.0.0.1", 0)}
    two = [daemon.containers.run(image, detach=True, ports=ports) for _ in range(2)]
    try:
        yield two
    finally:
        for each in two:
            each.remove(force=True, v=True)


@pytest.fixture(scope="module")
def addresses(registries: list[Container]) -> list[str]:
    for each in registries:
        each.reload()
    found = [f"127.0.0.1:{(each.ports['5000/tcp'] or [])[0]['HostPort']}" for each in registries]
    for address in found:
        with requests.Session() as session:
            retry = requests.adapters.Retry(20, backoff_factor=0.05)
            session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retry))
            assert session.get(f"http://{address}/v2/").ok
    return found


@pytest.fixture
def new_image(daemon: DockerClient) -> Iterator[Callable[[], str]]:
    """Make an image with a new layer, under the same name each time; return its ID."""
    made: list[str] = []

    def make() -> str:
        layer = _archive({"file": os.urandom(20_000)})
        root = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}
        config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": root}).encode()
        manifest = [{"Config": "config.json", "RepoTags": [f"{NAME}:1"], "Layers": ["layer.tar"]}]
        files = {"layer.tar": layer, "config.json": config, "manifest.json": json.dumps(manifest).encode()}
        made.append(str(daemon.images.load(_archive(files))[0].id))
        return made[-1]

    yield make
    for image_id in made:
        daemon.images.remove(image_id, force=True)


def _archive(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def check_complete(repository: Repository, reference: str) -> str:
    """Check that the registry has all parts of an image, and return its ID."""
    manifest = repository.manifest(reference)
    assert manifest, f"{repository.name} has no {reference}"
    for part in (manifest.parsed["config"], *manifest.parsed["layers"]):
        assert len(repository.blob(part["digest"])) == part["size"]
    (image_id,) = referrers.image_ids(repository, manifest) - {manifest.digest}
    return image_id


def tagged_ids(addresses: list[str], tags: list[str]) -> list[str]:
    """IDs of the tagged images, in all registries."""
    found = []
    for address in addresses:
        with Repository(f"{address}/{NAME}") as repository:
            found += [check_complete(repository, tag) for tag in tags]
    return found


def check_digest_files(notes: Path, addresses: dict[str, str]) -> int:
    """Check that every digest file names a complete image, and return their number."""
    files = list(notes.rglob("*.digest"))
    for path in files:
        name, _, digest = path.read_text().strip().partition("@")
        with Repository(f"{addresses[name.partition('/')[0]]}/{NAME}") as repository:
            check_complete(repository, digest)
    return len(files)


def changes(registries: list[Container]) -> int:
    """Number of requests to the registries that change something."""
    return sum(len(re.findall('"(PUT|POST|PATCH|DELETE) /v2/', each.logs().decode())) for each in registries)


def uploads(registries: list[Container]) -> list[Counter[str]]:
    """Number of uploads of each blob to each registry, from its log."""
    taken = re.compile(r'"PUT /v2/\S+/blobs/uploads/\S+digest=sha256%3A([0-9a-f]{64})\S* HTTP/1.1" 201')
    return [Counter(taken.findall(each.logs().decode())) for each in registries]


def test_push_killed_at_any_point_is_completed_by_the_next(
    registries: list[Container], addresses: list[str], new_image: Callable[[], str], tmp_path: Path
) -> None:
    points, notes, engine = Points(), tmp_path / "notes", choose()
    with ExitStack() as stack:
        ways = [stack.enter_context(way(address, points)) for address in addresses]
        repositories, behind = [f"{each}/{NAME}" for each in ways], dict(zip(ways, addresses))

        def push() -> None:
            process = prepared(engine, f"{NAME}:1", repositories, TAGS, notes)
            process.start()
            process.join(60)
            assert process.exitcode == 0

        old = new_image()
        push()
        total = next(points.passed)
        assert total > POINTS
        ended = Counter[str]()
        for point in range(POINTS):
            new = new_image()
            process = prepared(engine, f"{NAME}:1", repositories, TAGS, notes)
            points.set(total * point // POINTS, partial(kill, process))
            process.start()
            process.join(60)
            points.at = -1
            # A push may pass a few points fewer than the first one, and then ends before the last kills.
            assert process.exitcode == -9 or (process.exitcode == 0 and point >= POINTS - 2), (
                f"point {point} of {POINTS}"
            )

            points.settle()
            after = tagged_ids(addresses, TAGS)
            assert set(after) <= {old, new}
            check_digest_files(notes, behind)
            ended["old" if set(after) == {old} else "new" if set(after) == {new} else "between"] += 1

            push()
            assert set(tagged_ids(addresses, TAGS)) == {new}
            assert check_digest_files(notes, behind) == len(addresses)
            old = new

        before = changes(registries)
        push()
        assert changes(registries) == before > 0
    assert ended["old"] > 1 < ended["between"]  # it was killed before and while the tags were set
    for counted in uploads(registries):
        assert len(counted) == (POINTS + 1) * 2  # the layer and the configuration
        assert {digest: times for digest, times in counted.items() if times > 1} == {}
