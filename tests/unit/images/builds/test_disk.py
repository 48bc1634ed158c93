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
from tests.support.images.fake_registry import FakeRegistry

CPU = Catalog.read().find("cpu")
GB = 10**9
SetFree = Callable[[float], None]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, int]:
    """The sizes of an engine's images; its data root is ``tmp_path``."""
    sizes: dict[str, int] = {}

    def find(reference: str) -> Inspected | None:
        return Inspected({"Size": sizes[reference]}) if reference in sizes else None

    monkeypatch.setattr(disk, "find", find)
    monkeypatch.setattr(disk, "data_root", lambda: tmp_path)
    return sizes


@pytest.fixture
def set_free(monkeypatch: pytest.MonkeyPatch) -> SetFree:
    """Sets the free bytes of every disk."""
    return lambda free: monkeypatch.setattr(disk, "free_bytes", lambda _: int(free))


def test_a_build_that_does_not_fit_is_refused_with_both_numbers(
    engine: dict[str, int], set_free: SetFree, tmp_path: Path
) -> None:
    engine |= {"verl.cpu:1": 25 * GB}

    set_free(6.01 * GB)
    disk.require_for_build(CPU, "verl.cpu:1", 20 * GB)
    set_free(5.9 * GB)
    with pytest.raises(
        DiskTooSmall, match=rf"takes about 6.0 GB in {tmp_path}, and 5.9 GB are free.*invoke image.prune"
    ):
        disk.require_for_build(CPU, "verl.cpu:1", 20 * GB)


@pytest.mark.usefixtures("engine")
def test_a_first_build_is_estimated_by_the_known_sizes_of_verl_and_torch(set_free: SetFree) -> None:
    known = disk.PEAK * (disk.PACKAGES_BYTES + disk.TORCH_BYTES)

    set_free(known)
    disk.require_for_build(CPU, "verl.cpu:1", GB)
    set_free(known - 1)
    with pytest.raises(DiskTooSmall, match=r"takes about 2\.0 GB"):
        disk.require_for_build(CPU, "verl.cpu:1", GB)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("indexed", [False, True])
def test_a_base_to_pull_counts_with_the_sizes_of_its_manifest(
    set_free: SetFree, server: FakeRegistry, indexed: bool
) -> None:
    layers = [{"size": 5 * GB}, {"size": 3 * GB}]
    digest = server.keep("1", json.dumps({"layers": layers}).encode(), DOCKER_MANIFEST)
    if indexed:
        server.keep("1", json.dumps({"manifests": [{"digest": digest}]}).encode(), INDEXES[0])
    set_free(30 * GB)

    with pytest.raises(DiskTooSmall, match=r"takes about 33\.2 GB"):  # 8 GB, the same unpacked, and the packages
        disk.require_for_build(CPU, "verl.cpu:1", pulled=f"{server.host}/team/base:1")


@pytest.mark.usefixtures("engine")
def test_a_base_in_an_archive_counts_with_its_size_and_no_registry_is_queried(set_free: SetFree) -> None:
    set_free(8.9 * GB)
    with pytest.raises(DiskTooSmall, match=r"takes about 9\.0 GB"):
        disk.require_for_build(CPU, "verl.cpu:1", archive_bytes=7 * GB)
    set_free(9 * GB)
    disk.require_for_build(CPU, "verl.cpu:1", archive_bytes=7 * GB)


@pytest.mark.usefixtures("engine", "engine_settings")
def test_a_registry_that_does_not_answer_refuses_no_build(set_free: SetFree) -> None:
    set_free(3 * GB)
    disk.require_for_build(CPU, "verl.cpu:1", pulled="127.0.0.1:1/base:1")


def test_the_storage_of_buildah_needs_room_for_its_own_copy(
    engine: dict[str, int], set_free: SetFree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine |= {"verl.cpu:1": 25 * GB}
    store = tmp_path / "store"
    monkeypatch.setattr(buildah, "BUILDAH_STORE", store)
    set_free(10 * GB)

    with pytest.raises(DiskTooSmall, match=f"with buildah takes about 26.0 GB in {store}"):
        disk.require_for_build(CPU, "verl.cpu:1", 20 * GB, reproducible=True)


def test_the_disk_of_a_remote_engine_is_not_checked(set_free: SetFree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "data_root", lambda: Path("/no/such/folder"))
    set_free(0)

    disk.require_for_build(CPU, "verl.cpu:1")


def test_a_missing_folder_has_the_free_space_of_its_parent(tmp_path: Path) -> None:
    assert disk.free_bytes(tmp_path / "a/b/c") == pytest.approx(disk.free_bytes(tmp_path), rel=0.1)
