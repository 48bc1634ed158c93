"""Checks of one node before anything starts there: each is a function that answers, `run` decides.

To add one: write a function ``name(settings, gpus) -> Result`` in a module here, its threshold as data beside it, and
name it in CHECKS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verl_node.checks import devices, limits, memory, places
from verl_node.checks.answer import Result
from verl_node.errors import CheckFailed, NodeError, PermissionMissing
from verl_node.settings import Settings

Check = Callable[[Settings, int], Result]

CHECKS: tuple[Check, ...] = (
    places.run_directory_is_writable,
    places.home_is_writable,
    places.temporary_folder_is_writable,
    memory.shared_memory_is_large,
    limits.open_files_suffice,
    limits.processes_suffice,
    limits.memory_can_be_locked,
    devices.gpus_are_visible,
)


def run(settings: Settings, gpus: int, *, say: Callable[[str], None], checks: Sequence[Check] = CHECKS) -> None:
    """Run every check; say each warning.

    Raises CheckFailed with everything that failed, PermissionMissing where that is only permissions.
    """
    failures = []
    for check in checks:
        result = check(settings, gpus)
        if result.severity == "warn":
            say(f"warning, {_name(check)}: {result.seen} {result.fix}")
        elif result.severity in ("fail", "permission"):
            failures.append((check, result))
    if failures:
        seen = " ".join(f"{_name(check)}: {result.seen}" for check, result in failures)
        error: type[NodeError] = CheckFailed
        if all(result.severity == "permission" for _, result in failures):
            error = PermissionMissing
        raise error(seen, fix=" ".join(result.fix for _, result in failures))


def _name(check: Check) -> str:
    return f"{check.__module__.rpartition('.')[2]}.{check.__name__}"
