"""`node`: runs one node of a job, or of a cluster without Slurm, from its settings to its verdict."""

from __future__ import annotations

from verl_node import no_openssl  # noqa: F401  before what it keeps out

# isort: split
import argparse
import asyncio
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace

from verl_node.errors import NodeError
from verl_node.node import shutdown
from verl_node.node.node import Node
from verl_node.reporting import masking
from verl_node.reporting.masking import Masking
from verl_node.reporting.verdict import Verdict
from verl_node.settings.settings import Settings
from verl_node.supervision import cgroup_events, heartbeat, lease, process_tree, stopped
from verl_node.supervision.signals import Signals
from verl_node.supervision.waiting import ended, unless


def main(arguments: Sequence[str] | None = None) -> int:
    """Be a node; return its exit code (docs/flow.md). Only here an error becomes one."""
    options = _parse(arguments)
    with redirect_stdout(Masking(sys.stdout)), redirect_stderr(Masking(sys.stderr)):
        try:
            settings = _settings(options)
            masking.remember(settings.secrets)
            node = Node(settings)
            node.begin_checks()
        except NodeError as error:
            return _refuse(error)
        # The loop is not closed: that waits for threads, and one may look at a driver that never answers.
        return asyncio.new_event_loop().run_until_complete(_live(node))


async def _live(node: Node) -> int:
    signals = Signals()
    process_tree.adopt_orphans()
    heartbeat.start(node.settings.out_dir / "pulse")
    stall_s = node.settings.stall_s
    watchers = [signals.watch(), stopped.watch(node.host, stall_s)]
    watchers += [lease.watch(node.settings.lease, stall_s)] if node.settings.lease else []
    try:
        verdict = await unless(*watchers, story=_story(node))
        code = 0 if node.settings.joins else verdict.code  # a worker that heard how the job ended did its part
    except NodeError as error:
        verdict = Verdict.from_error(error, stage=node.journal.phase, host=node.host)
        code = verdict.code
    except Exception as error:  # a mistake of ours: shown whole, but nothing may be left behind for it
        traceback.print_exc()
        verdict = _mistake(node, error)
        code = verdict.code
    if code and verdict.host == node.host:  # what the kernel did came first
        kernel = cgroup_events.read(node.settings.memory_bytes)
        known = kernel.failure_class or verdict.failure_class
        verdict = replace(verdict, cause=f"{kernel.words} {verdict.cause}".lstrip(), failure_class=known)
    await shutdown.conclude(node, verdict)
    await shutdown.explain(node, verdict)
    await ended(asyncio.all_tasks() - {asyncio.current_task()})
    if node.settings.by_hand:  # under Slurm launch.sh has the last word
        print(verdict.sentence(), flush=True)  # noqa: T201
    return code


async def _story(node: Node) -> Verdict:
    """Be the node; a worker does without what the head alone needs, half of its CPU time at start."""
    node.require_checks()
    if node.settings.joins:
        from verl_node.node import worker

        return await worker.follow(node)
    from verl_node.node import head

    return await head.lead(node)


def _mistake(node: Node, error: Exception) -> Verdict:
    cause = f"verl_node made a mistake: {type(error).__name__}: {error}."
    return Verdict(NodeError.code, "self", node.journal.phase, node.host, cause, "Report it with the lines above.")


def _settings(options: argparse.Namespace) -> Settings:
    settings = Settings.from_env(os.environ)
    if options.join:
        return settings.joined_by_hand(options.join, gpus=options.gpus)
    if options.head:
        return settings.headed_by_hand(nodes=options.nodes, gpus=options.gpus)
    return settings


def _refuse(error: NodeError) -> int:
    """Report settings that make no node: there is no host yet whose verdict could be filed, so the line is all."""
    verdict = Verdict.from_error(error, stage="checks", host=os.uname().nodename)
    print(verdict.sentence(), flush=True)  # noqa: T201
    return verdict.code


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="node", description=__doc__)
    role = parser.add_mutually_exclusive_group()
    role.add_argument("--head", action="store_true", help="lead a cluster by hand, without Slurm")
    role.add_argument("--join", metavar="HOST:PORT", help="join the head there; `node --head` prints the line to type")
    parser.add_argument(
        "--nodes", type=int, metavar="N", help="how many machines the cluster has, this one included (--head)"
    )
    parser.add_argument(
        "--gpus", type=int, metavar="N", help="GPUs that each machine gives; by default all that are visible"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    CODE = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(CODE)  # for the same threads
