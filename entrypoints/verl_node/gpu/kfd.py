"""Finds the render nodes that are GPUs, from AMD's compute driver in /sys/class/kfd.

An MI300X has eight render nodes for partitions that it could be split into, and is one GPU until it is. Of the other
seven /dev/dri and /sys/class/drm know as well (ROCm/rocDecode#38, ROCm/k8s-device-plugin#157), this driver does not. It
hides those that a device cgroup closes, and numbers the rest as HIP does.
"""

from __future__ import annotations

from pathlib import Path

NODES = Path("/sys/class/kfd/kfd/topology/nodes")


def architectures() -> dict[str, str]:
    """Return the gfx name of each GPU's render node, in HIP's order; none without the driver.

    gfx_target_version 90402 is gfx942, the last digit in hexadecimal (90010 is gfx90a), and that of a CPU is 0.
    """
    found = {}
    for node in sorted(NODES.glob("[0-9]*"), key=lambda node: int(node.name)):
        told = dict(line.split(maxsplit=1) for line in _properties(node).splitlines() if " " in line)
        version = int(told.get("gfx_target_version", "0"))
        if version:
            major, minor, step = version // 10000, version // 100 % 100, version % 100
            found[f"renderD{told.get('drm_render_minor', '')}"] = f"gfx{major}{minor:x}{step:x}"
    return found


def _properties(node: Path) -> str:
    try:
        return (node / "properties").read_text()
    except OSError:  # EPERM: the node of a GPU that was given to somebody else
        return ""
