"""Peak rates of GPUs and their links, from the vendors' data sheets."""

from __future__ import annotations

import re

# Dense bfloat16, TFLOP/s: NVIDIA's data sheets of the H200, H100 and A100 (half of the figure "with sparsity"), of the
# HGX B200 (36 PFLOP/s for eight with sparsity); AMD's of the MI325X, MI300X and MI250X (of one of its two dies).
_TFLOPS = {
    "B200": 2250.0,
    "H200": 989.0,
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H100": 989.0,
    "A100": 312.0,
    "MI325X": 1307.0,
    "MI300X": 1307.0,
    "MI250X": 191.5,
}
# GB/s of one NVLink in one direction: 900 GB/s in both for the 18 of an H100 or H200, 1800 for the 18 of a B200.
_LINK_GBPS, _LINK_GBPS_BLACKWELL = 25.0, 50.0


def tflops(model: str) -> float | None:
    """Return the peak of a GPU of this name; None for one that is not in the table."""
    return next((peak for name, peak in _TFLOPS.items() if name in model), None)


def nvlink_gbps(topology: str, model: str) -> float | None:
    """Return what the least joined pair has, from `nvidia-smi topo -m`; None where a pair has no NVLink."""
    rows = [line.split() for line in re.sub(r"\x1b\[\d*m", "", topology).splitlines()]
    gpus = [row[1:] for row in rows if row and re.fullmatch(r"GPU\d+", row[0]) and "X" in row]
    pairs = [word for row in gpus for word in row[: len(gpus)] if word != "X"]
    links = [int(word[2:]) for word in pairs if re.fullmatch(r"NV\d+", word)]
    if not pairs or len(links) < len(pairs):
        return None
    return min(links) * (_LINK_GBPS_BLACKWELL if "B200" in model else _LINK_GBPS)
