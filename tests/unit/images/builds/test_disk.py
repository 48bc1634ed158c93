"""A build that does not fit is refused before it starts, with the numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from images.builds import disk
from images.catalog.catalog import Catalog
from images.engine import buildah
from images.engine.daemon import Inspected
from images.errors import DiskTooSmall
from images.registry.client import DOCKER_MANIFEST, INDEXES
from tests.support.fake_registry import FakeRegistry

CPU = Catalog.read().find("cpu")
GB = 10**9


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, int]:
    """The sizes of an engine's images; its data root is ``tmp_path``."""
    sizes: dict[str, int] = {}

    def find(reference: str) -> Inspected | None:
        return Inspected({"Size": sizes[reference]}) if reference in sizes else None

    monkeypatch.setattr(disk, "find", find)
    monkeypatch.setattr(disk, "data_root", lambda: tmp_path)
    return sizes


def having(free: float) -> Callable[[Path], int]:
    return lambda _: int(free)


def test_a_build_that_does_not_fit_is_refused_with_both_numbers(engine: dict[str, int], tmp_path: Path) -> None:
    engine |= {"verl.cpu:1": 25 * GB}

    disk.require_for_build(CPU, "verl.cpu:1", 20 * GB, free=having(6.01 * GB))
    with pytest.raises(
        DiskTooSmall, match=rf"takes about 6.0 GB in {tmp_path}, and 5.9 GB are free.*invoke image.prune"
    ):
        disk.require_for_build(CPU, "verl.cpu:1", 20 * GB, free=having(5.9 * GB))


def test_a_first_build_is_estimated_by_the_known_sizes_of_verl_and_torch(engine: dict[str, int]) -> None:
    known = disk.PEAK * (disk.PACKAGES_BYTES + disk.TORCH_BYTES)

    disk.require_for_build(CPU, "verl.cpu:1", GB, free=having(known))
    with pytest.raises(DiskTooSmall, match=r"takes about 2\.0 GB"):
        disk.require_for_build(CPU, "verl.cpu:1", GB, free=having(known - 1))


@pytest.mark.parametrize("indexed", [False, True])
def test_a_base_to_pull_counts_with_the_sizes_of_its_manifest(
    engine: dict[str, int], server: FakeRegistry, indexed: bool
) -> None:
    layers = [{"size": 5 * GB}, {"size": 3 * GB}]
    digest = server.keep("1", json.dumps({"layers": layers}).encode(), DOCKER_MANIFEST)
    if indexed:
        server.keep("1", json.dumps({"manifests": [{"digest": digest}]}).encode(), INDEXES[0])

    with pytest.raises(DiskTooSmall, match=r"takes about 33\.2 GB"):  # 8 GB, the same unpacked, and the packages
        disk.require_for_build(CPU, "verl.cpu:1", pulled=f"{server.host}/team/base:1", free=having(30 * GB))


def test_a_base_in_an_archive_counts_with_its_size_and_no_registry_is_queried(engine: dict[str, int]) -> None:
    with pytest.raises(DiskTooSmall, match=r"takes about 9\.0 GB"):
        disk.require_for_build(CPU, "verl.cpu:1", archive_bytes=7 * GB, free=having(8.9 * GB))
    disk.require_for_build(CPU, "verl.cpu:1", archive_bytes=7 * GB, free=having(9 * GB))


def test_a_registry_that_does_not_answer_refuses_no_build(engine: dict[str, int], engine_settings: None) -> None:
    disk.require_for_build(CPU, "verl.cpu:1", pulled="127.0.0.1:1/base:1", free=having(3 * GB))


def test_the_storage_of_buildah_needs_room_for_its_own_copy(
    engine: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine |= {"verl.cpu:1": 25 * GB}
    store = tmp_path / "store"
    monkeypatch.setattr(buildah, "BUILDAH_STORE", store)

    with pytest.raises(DiskTooSmall, match=f"with buildah takes about 26.0 GB in {store}"):
        disk.require_for_build(CPU, "verl.cpu:1", 20 * GB, reproducible=True, free=having(10 * GB))


def test_the_disk_of_a_remote_engine_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "data_root", lambda: Path("/no/such/folder"))

    disk.require_for_build(CPU, "verl.cpu:1", free=having(0))


def test_a_missing_folder_has_the_free_space_of_its_parent(tmp_path: Path) -> None:
    assert disk.free_bytes(tmp_path / "a/b/c") == pytest.approx(disk.free_bytes(tmp_path), rel=0.1)
