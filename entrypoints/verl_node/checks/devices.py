"""GPU devices."""

from __future__ import annotations

import os
from glob import glob

from verl_node import masks
from verl_node.checks.answer import OK, Result
from verl_node.settings import Settings

# Without these no GPU of the platform can be used, however many of the others there are.
CONTROL = {"cuda": ("/dev/nvidiactl", "/dev/nvidia-uvm"), "rocm": ("/dev/kfd",)}


def gpus_are_visible(settings: Settings, gpus: int) -> Result:
    """As many devices as the job has GPUs, each usable by this account; the platform cpu only declares its GPUs."""
    if settings.platform not in CONTROL or gpus == 0:
        return OK
    absent = [device for device in CONTROL[settings.platform] if not os.path.exists(device)]
    seen = masks.visible_devices(settings.platform)
    if absent or seen < gpus:
        what = f"{seen} GPU devices are visible, {gpus} are the job's" + (
            f"; {', '.join(absent)} is missing" if absent else ""
        )
        return Result(
            "fail",
            f"{what}.",
            "Pass the devices into the container; compare with `ls -l /dev/dri /dev/kfd /dev/nvidia*`.",
        )
    devices = [*CONTROL[settings.platform], *glob(masks.DEVICES[settings.platform])]
    closed = [device for device in devices if not os.access(device, os.R_OK | os.W_OK)]
    if closed:
        return Result(
            "permission",
            f"{', '.join(closed)} may not be opened by uid {os.getuid()} with the groups {os.getgroups()}.",
            "Add the device's numeric group to the container: --group-add $(stat -c %g DEVICE).",
        )
    return OK
