"""`python3 -m verl_node.checks`: checks of this machine alone, as a table or as JSON, or its network.

`invoke job.doctor` is this on a login node. On an allocation it is `sbatch slurm/launch.sh doctor`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from verl_node.checks import BY_NAME, table
from verl_node.checks.check import Check, adjusted, renamed
from verl_node.checks.cluster import Report
from verl_node.checks.node import cache, clock, debug, folders, login, network, vllm
from verl_node.checks.runner import Run
from verl_node.errors import CheckFailed, NodeError
from verl_node.network import fabric
from verl_node.settings.settings import Settings

# What can be told without an allocation: neither limits nor GPUs nor the network of the nodes.
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
    """Check this machine; return 69 where something fails."""
    options = _parse(arguments)
    try:
        settings = Settings.from_env(os.environ)
        if options.show_env:
            own = options.address or settings.own_address()
            print("\n".join(fabric.of_this_node(own, settings.environ).lines(settings.environ)))  # noqa: T201
            return 0
        run = Run.begin(_chosen(settings.checks), settings, 0)
    except NodeError as error:
        print(f"{error.cause} {error.fix}", file=sys.stderr)  # noqa: T201
        return error.code
    report = Report(settings.allocation.host, asyncio.run(run.outcomes()), run.facts)
    print(table.record([report], []) if options.json else table.text([report], []))  # noqa: T201
    return CheckFailed.code if table.bad_hosts(report.outcomes) else 0


def _chosen(words: str) -> list[Check]:
    """Return the checks of a login node, as VERLJOB_CHECKS wants them; its words for other checks are for the nodes."""
    known = {check.name: check for check in LOGIN}
    words, notes = renamed(words)
    for note in notes:
        print(note, file=sys.stderr)  # noqa: T201
    adjusted({**BY_NAME, **known}, words)
    return adjusted(known, " ".join(word for word in words.split() if word.partition("=")[0] in known))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="doctor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument("--show-env", action="store_true", help="what would be set for NCCL and Gloo here, and why")
    parser.add_argument("--address", default="", help="this machine's address towards the head (--show-env)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
