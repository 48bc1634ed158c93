"""GPU devices."""

from __future__ import annotations

import os

from verl_node.checks.check import check
from verl_node.checks.result import IDLE, OK, Result
from verl_node.gpu import platforms
from verl_node.settings.settings import Settings


@check("slurm-container")
def gpus_are_visible(settings: Settings, gpus: int) -> Result:
    """As many devices usable by this account as the job has GPUs; the platform cpu only declares its GPUs.

    More may be there that are not the job's: Slurm's device cgroup closes them and leaves their nodes in place.
    """
    platform = platforms.find(settings.platform)
    if not platform.devices or gpus == 0:
        return IDLE
    absent = [device for device in platform.control if not os.path.exists(device)]
    seen = platform.visible_devices()
    if absent or len(seen) < gpus:
        what = f"{len(seen)} GPU devices are visible, {gpus} are the job's" + (
            f"; {', '.join(absent)} is missing" if absent else ""
        )
        return Result(
            "fail",
            f"{what}.",
            f"Pass them into the container; compare with `ls -l {' '.join(platform.control)} {platform.devices}`.",
        )
    usable = platform.usable_devices()
    closed = [device for device in platform.control if not os.access(device, os.R_OK | os.W_OK)]
    closed += [device for device in seen if device not in usable] if len(usable) < gpus else []
    if closed:
        return Result(
            "permission",
            f"{', '.join(closed)} may not be opened by uid {os.getuid()} with the groups {os.getgroups()}.",
            "Add the device's numeric group to the container: --group-add $(stat -c %g DEVICE).",
        )
    return OK
