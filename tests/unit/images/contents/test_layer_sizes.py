"""The sizes of a layer are kept by its digest, also where several builds look at one layer at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from images.contents import layer_sizes


def test_builds_that_look_at_one_layer_at_once_keep_its_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "layer").mkdir()
    (tmp_path / "layer/file").write_bytes(bytes(2_000_000))
    known, both = tmp_path / "known/abc.json", threading.Barrier(2, timeout=10)
    replace = Path.replace

    def together(self: Path, target: Path) -> Path:
        both.wait()
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", together)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: layer_sizes._of_layer(tmp_path / "layer", known), range(2))

    assert first == second == layer_sizes._of_layer(tmp_path / "layer", known)
    assert [path.name for path in known.parent.iterdir()] == ["abc.json"]
