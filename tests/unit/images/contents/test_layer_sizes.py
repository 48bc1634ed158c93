"""Sizes of a layer: cached by its digest, also if several builds measure one layer at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from images.contents import layer_sizes


def test_simultaneous_builds_cache_the_sizes_of_a_shared_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "layer").mkdir()
    (tmp_path / "layer/file").write_bytes(bytes(2_000_000))
    cached, both = tmp_path / "cache/abc.json", threading.Barrier(2, timeout=10)
    replace = Path.replace

    def together(self: Path, target: Path) -> Path:
        both.wait()
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", together)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: layer_sizes._largest_of_layer(tmp_path / "layer", cached), range(2))

    assert first == second == layer_sizes._largest_of_layer(tmp_path / "layer", cached)
    assert [path.name for path in cached.parent.iterdir()] == ["abc.json"]
