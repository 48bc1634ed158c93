"""What does not fit is refused before it is begun, with the numbers."""

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


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, int]:
    """The sizes of an engine's images, whose root is ``tmp_path``."""
    sizes: dict[str, int] = {}

    def find(reference: str) -> Inspected | None:
        return Inspected({"Size": sizes[reference]}) if reference in sizes else None

    monkeypatch.setattr(disk, "find", find)
    monkeypatch.setattr(disk, "storage", lambda: tmp_path)
    return sizes


def having(free: float) -> Callable[[Path], int]:
    return lambda _: int(free)


def test_a_build_that_fits_goes_on_and_one_that_does_not_is_refused_with_both_numbers(
    engine: dict[str, int], tmp_path: Path
) -> None:
    engine |= {"base:1": 20 * GB, "verl.cpu:1": 25 * GB}

    disk.for_build(CPU, "base:1", "verl.cpu:1", free=having(6.01 * GB))
    with pytest.raises(
        DiskTooSmall, match=rf"takes about 6.0 GB in {tmp_path}, and 5.9 GB are free there.*invoke image.prune"
    ):
        disk.for_build(CPU, "base:1", "verl.cpu:1", free=having(5.9 * GB))


def test_a_first_build_is_reckoned_by_what_verl_and_torch_are_known_to_take(engine: dict[str, int]) -> None:
    engine |= {"base:1": GB}
    known = disk.PEAK * (disk.PACKAGES_BYTES + disk.TORCH_BYTES)

    disk.for_build(CPU, "base:1", "verl.cpu:1", free=having(known))
    with pytest.raises(DiskTooSmall, match=r"takes about 2\.0 GB"):
        disk.for_build(CPU, "base:1", "verl.cpu:1", free=having(known - 1))


@pytest.mark.parametrize("indexed", [False, True])
def test_a_base_that_must_be_pulled_counts_as_its_registry_tells(
    engine: dict[str, int], server: FakeRegistry, indexed: bool
) -> None:
    layers = [{"size": 5 * GB}, {"size": 3 * GB}]
    digest = server.keep("1", json.dumps({"layers": layers}).encode(), DOCKER_MANIFEST)
    if indexed:
        server.keep("1", json.dumps({"manifests": [{"digest": digest}]}).encode(), INDEXES[0])

    with pytest.raises(DiskTooSmall, match=r"takes about 33\.2 GB"):  # 8 GB, the same unpacked, and the packages
        disk.for_build(CPU, f"{server.host}/team/base:1", "verl.cpu:1", free=having(30 * GB))


def test_a_base_that_comes_from_a_file_counts_as_that_and_no_registry_is_asked(engine: dict[str, int]) -> None:
    with pytest.raises(DiskTooSmall, match=r"takes about 9\.0 GB"):
        disk.for_build(CPU, "sha256:1", "verl.cpu:1", loaded=7 * GB, free=having(8.9 * GB))
    disk.for_build(CPU, "sha256:1", "verl.cpu:1", loaded=7 * GB, free=having(9 * GB))


def test_a_registry_that_does_not_answer_is_left_to_the_pull(engine: dict[str, int], engine_settings: None) -> None:
    disk.for_build(CPU, "127.0.0.1:1/base:1", "verl.cpu:1", free=having(3 * GB))


def test_buildahs_own_storage_is_asked_for_its_own_copy(
    engine: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine |= {"base:1": 20 * GB, "verl.cpu:1": 25 * GB}
    store = tmp_path / "store"
    monkeypatch.setattr(buildah, "BUILDAH_STORE", store)

    with pytest.raises(DiskTooSmall, match=f"with buildah takes about 26.0 GB in {store}"):
        disk.for_build(CPU, "base:1", "verl.cpu:1", reproducible=True, free=having(10 * GB))


def test_an_engine_on_another_machine_is_not_judged_by_this_ones_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "storage", lambda: Path("/no/such/folder"))

    disk.for_build(CPU, "base:1", "verl.cpu:1", free=having(0))


def test_a_folder_that_is_not_there_yet_has_the_room_of_the_one_it_will_be_in(tmp_path: Path) -> None:
    assert disk.free_bytes(tmp_path / "a/b/c") == pytest.approx(disk.free_bytes(tmp_path), rel=0.1)
