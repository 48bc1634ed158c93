"""Settings of Ray's debuggers: VERLJOB_DEBUG is `1` (distributed debugger) or `legacy` (`ray debug`).

They listen without asking anybody who he is: whoever reaches the node can run code as the job's account.
"""

from __future__ import annotations

from verl_node.settings.parsing import LEGACY, NO_DEBUGGER
from verl_node.settings.ports import NodePorts

PORTS = "VERLJOB_DEBUG_PORTS"  # read by worker_setup.py, in Ray's workers
SUPERVISOR = "VERLJOB_SUPERVISOR_PID"

_DEBUG, _POST_MORTEM = "RAY_DEBUG", "RAY_DEBUG_POST_MORTEM"


def environment(mode: str, ports: NodePorts) -> dict[str, str]:
    """Return what every process of Ray gets for it; a variable of the other debugger is set so that it is off."""
    if mode == NO_DEBUGGER:
        return {}
    assert ports.debuggers is not None
    block = "{}-{}".format(*ports.debuggers)
    if mode == LEGACY:
        return {_DEBUG: "legacy", _POST_MORTEM: "0", PORTS: block}
    return {_DEBUG: "1", _POST_MORTEM: "1", PORTS: block}


def ray_flags(mode: str) -> list[str]:
    """Return what `ray start` gets: without it the old debugger is reached from its own node alone."""
    return ["--ray-debugger-external"] if mode == LEGACY else []
