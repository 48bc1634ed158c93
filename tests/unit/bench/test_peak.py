"""bench/images/peak.py measures the peak and the final disk use of a build."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bench.images import peak
from images.builds import disk
from images.catalog.catalog import Catalog
from images.engine.daemon import Inspected

# A build of verl.cpu 0.9.1 without cached layers left this above its base of 117 MB (report of 2026-11-22). The
# estimate has to include the wheel of torch, which BuildKit keeps from the context, and be at most half as much again.
LEFT_BYTES, WHEEL_BYTES = 1_655_021_065, 191_794_682


@pytest.mark.parametrize(
    ("free", "peak_bytes", "left_bytes"),
    [([500, 300, 100, 200], 400, 300), ([500, 500, 600], 0, -100), ([500, 400], 100, 100)],
)
def test_watch_has_peak_and_final_use(
    free: list[int], peak_bytes: int, left_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peak, "PERIOD_S", 0.001)
    samples = list(free)
    with peak.Watch(tmp_path, lambda _: samples.pop(0) if len(samples) > 1 else samples[0]) as used:
        deadline = time.monotonic() + 10
        while len(samples) > 1 and time.monotonic() < deadline:
            time.sleep(0.001)

    assert (used.peak, used.left) == (peak_bytes, left_bytes)


@pytest.mark.parametrize("built_before", [False, True])
def test_the_estimate_of_verl_cpu_is_its_use_and_at_most_half_more(
    built_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = 116_667_729
    sizes = {"verl.cpu:1": base + LEFT_BYTES} if built_before else {}
    monkeypatch.setattr(disk, "find", lambda name: Inspected({"Size": sizes[name]}) if name in sizes else None)

    estimate = disk.estimated_bytes(Catalog.read().find("cpu"), "verl.cpu:1", base)

    assert LEFT_BYTES + WHEEL_BYTES < estimate < 1.5 * LEFT_BYTES
