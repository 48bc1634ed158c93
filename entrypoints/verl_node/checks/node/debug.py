"""Ray's two debuggers: at most one is on, with its requirements."""

from __future__ import annotations

from importlib.util import find_spec

from verl_node import versions
from verl_node.checks.check import check
from verl_node.checks.result import OK, Result
from verl_node.settings.identity import installed
from verl_node.settings.parsing import DISTRIBUTED
from verl_node.settings.settings import Settings

_OLDEST_RAY = (2, 40)  # required by verl's guide; the VS Code extension supports 2.39 and later


@check("debug-logs")
def one_debugger_is_on(settings: Settings, gpus: int) -> Result:
    """RAY_DEBUG=legacy and RAY_DEBUG_POST_MORTEM=1 are not both set (ray/util/rpdb.py)."""
    if not settings.debug and settings.environ.get("RAY_DEBUG") == "legacy" and _post_mortem(settings):
        return Result(
            "fail",
            "RAY_DEBUG=legacy and RAY_DEBUG_POST_MORTEM=1: a failed task waits for `ray debug`, not for VS Code.",
            "Unset one of them: RAY_DEBUG for VS Code's debugger, RAY_DEBUG_POST_MORTEM for `ray debug`.",
            "one of them",
        )
    return OK


@check("debug-logs")
def debugger_has_what_it_needs(settings: Settings, gpus: int) -> Result:
    """Ray's distributed debugger has Ray 2.40 or later and debugpy, in the image's Python."""
    without_flag = settings.environ.get("RAY_DEBUG", "1" if _post_mortem(settings) else "") == "1"
    if not (settings.debug == DISTRIBUTED or (without_flag and not settings.debug)):
        return OK
    ray = installed("ray")
    if ray and versions.parse(ray) < _OLDEST_RAY:
        return Result(
            "fail",
            f"Ray {ray} is too old for its distributed debugger.",
            "Use launch.sh --debug legacy.",
            "Ray 2.40 or later",
        )
    if find_spec("debugpy") is None:
        return Result(
            "fail",
            "debugpy is not installed; a breakpoint of Ray's debugger needs it.",
            "Use an image of this toolkit, or pip install debugpy; launch.sh --debug legacy does not need it.",
            "debugpy",
        )
    return OK


def _post_mortem(settings: Settings) -> bool:
    """Ray ignores any other value."""
    return settings.environ.get("RAY_DEBUG_POST_MORTEM", "0") == "1"
