"""`python3 -m verl_node.checks`: checks of this machine, as a table or as JSON, or its network settings.

`invoke job.doctor` runs it on a login node. On an allocation use `sbatch slurm/launch.sh doctor`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from verl_node.checks import BY_NAME, table
from verl_node.checks.check import Check, adjusted, replace_old_names
from verl_node.checks.cluster import Report
from verl_node.checks.node import cache, clock, debug, folders, login, network, vllm
from verl_node.checks.runner import Run
from verl_node.errors import CheckFailed, NodeError
from verl_node.network import fabric
from verl_node.settings.settings import Settings

# Checks that need no allocation: neither limits nor GPUs nor the network of the nodes.
LOGIN: tuple[Check, ...] = (
    login.slurm_answers,
    login.paths_are_shared,
    login.files_that_are_named_exist,
    folders.run_directory_is_writable,
    folders.home_is_writable,
    folders.folders_have_room,
    network.head_name_resolves,
    vllm.allocator_settings_fit,
    debug.one_debugger_is_on,
    clock.certificates_are_here,
    cache.cache_is_one_place,
    cache.cache_is_writable,
    cache.cache_has_locks,
    cache.cache_has_room,
    cache.gated_model_has_a_token,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check this machine; return 69 if a check fails."""
    options = _parse(arguments)
    try:
        settings = Settings.from_env(os.environ)
        if options.show_env:
            address = options.address or settings.own_address()
            plugin_variables = settings.plugin_variables
            found = fabric.discover_on_this_node(address, settings.environ, plugin_variables=plugin_variables)
            print("\n".join(found.lines(settings.environ)))  # noqa: T201
            return 0
        run = Run.begin(_chosen(settings.checks), settings, 0)
    except NodeError as error:
        print(f"{error.cause} {error.fix}", file=sys.stderr)  # noqa: T201
        return error.code
    report = Report(settings.allocation.host, asyncio.run(run.outcomes()), run.facts)
    print(table.record([report], []) if options.json else table.text([report], []))  # noqa: T201
    return CheckFailed.code if table.bad_hosts(report.outcomes) else 0


def _chosen(adjustments: str) -> list[Check]:
    """Return the adjusted checks of a login node; entries for other checks are only verified."""
    login_checks = {check.name: check for check in LOGIN}
    adjustments, notes = replace_old_names(adjustments)
    for note in notes:
        print(note, file=sys.stderr)  # noqa: T201
    adjusted({**BY_NAME, **login_checks}, adjustments)
    entries = [entry for entry in adjustments.split() if entry.partition("=")[0] in login_checks]
    return adjusted(login_checks, " ".join(entries))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="doctor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--show-env", action="store_true", help="print the settings for NCCL and Gloo, with reasons")
    parser.add_argument("--address", default="", help="this machine's address towards the head (--show-env)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
