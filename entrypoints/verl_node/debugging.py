"""Ray's debuggers, where VERLJOB_DEBUG asks for one: `1`, the distributed debugger, or `legacy`, that of `ray debug`.

They listen without asking anybody who he is: whoever reaches the node can run code as the job's account.
"""

from __future__ import annotations

from collections.abc import Mapping

from verl_node.errors import BadSettings, CheckFailed
from verl_node.ports import NodePorts
from verl_node.versions import parse

OFF, DISTRIBUTED, LEGACY = "", "1", "legacy"
MODES = (OFF, DISTRIBUTED, LEGACY)
PORTS = "VERLJOB_DEBUG_PORTS"  # read by traceable.py, in Ray's workers
SUPERVISOR = "VERLJOB_SUPERVISOR_PID"

_OLDEST_DEBUGPY = (1, 8)  # ray/util/debugpy.py refuses an older one, in a log that nobody reads
_DEBUG, _POST_MORTEM = "RAY_DEBUG", "RAY_DEBUG_POST_MORTEM"


def require(mode: str, debugpy: str) -> None:
    """Hold that the distributed debugger can work with this version of debugpy. Raises CheckFailed."""
    if mode != DISTRIBUTED or (debugpy and parse(debugpy) >= _OLDEST_DEBUGPY):
        return
    raise CheckFailed(
        f"Ray's debugger needs debugpy 1.8, and here is {debugpy or 'none'}.",
        fix="Use an image of this toolkit that has it, or pip install debugpy; `--debug legacy` does without.",
    )


def environment(mode: str, given: Mapping[str, str], ports: NodePorts) -> dict[str, str]:
    """Return what every process of Ray gets for it; a variable of the other debugger is set so that it is off.

    Raises BadSettings where the user's own variables ask for both debuggers, of which Ray would start neither.
    """
    if mode == OFF:
        if given.get(_DEBUG) == "legacy" and given.get(_POST_MORTEM) == "1":
            raise BadSettings(
                f"{_DEBUG}=legacy and {_POST_MORTEM}=1 are of two debuggers.",
                fix="Unset both, and start with slurm/launch.sh --debug.",
            )
        return {}
    assert ports.debuggers is not None
    block = "{}-{}".format(*ports.debuggers)
    if mode == LEGACY:
        return {_DEBUG: "legacy", _POST_MORTEM: "0", PORTS: block}
    return {_DEBUG: "1", _POST_MORTEM: "1", PORTS: block}


def ray_flags(mode: str) -> list[str]:
    """Return what `ray start` gets: without it the old debugger is reached from its own node alone."""
    return ["--ray-debugger-external"] if mode == LEGACY else []
