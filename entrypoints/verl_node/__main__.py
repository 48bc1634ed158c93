"""`node`: runs one node of a job, or of a cluster without Slurm, from its settings to its verdict."""

from __future__ import annotations

from verl_node import no_openssl  # noqa: F401  before any import of ssl

# isort: split
import argparse
import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace

from verl_node.checks.background import NodeChecks
from verl_node.errors import EndedFromOutside, NodeError
from verl_node.node import compile_cache
from verl_node.node.node_facts import NodeFacts
from verl_node.node.shutdown import Shutdown
from verl_node.ray_node import flags
from verl_node.reporting import masking
from verl_node.reporting.events import Journal
from verl_node.reporting.masking import Masking
from verl_node.reporting.verdict import Verdict
from verl_node.settings.settings import Settings
from verl_node.supervision import cgroup_events, heartbeat, lease, process_tree
from verl_node.supervision.waiting import ended, run_watched
from verl_node.training import external_modules


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a node; return its exit code (docs/flow.md). Errors become exit codes only in this module."""
    options = _parse(arguments)
    with redirect_stdout(Masking(sys.stdout)), redirect_stderr(Masking(sys.stderr)):
        try:
            os.environ.update({**compile_cache.variables(os.environ), **external_modules.variables(os.environ)})
            settings = _settings(options)
            masking.remember(settings.secrets)
            facts = NodeFacts.gather(settings)
        except NodeError as error:
            return _refuse(error)
        journal = Journal(facts.host)
        for phase, seconds in settings.host_phases.items():
            journal.relay(phase, "end", "", seconds)
        checks = _begin_checks(facts, journal)
        # The loop is not closed: that waits for threads, and one may wait for a driver that never answers.
        return asyncio.new_event_loop().run_until_complete(_run(facts, journal, checks))


def _begin_checks(facts: NodeFacts, journal: Journal) -> NodeChecks | NodeError:
    """Start the checks, which fork: before there are threads or an event loop. An error is raised in the event loop."""
    try:
        flags.supported(facts.identity.ray)
        return NodeChecks(facts.settings, facts.gpus, journal)
    except NodeError as error:
        return error


async def _run(facts: NodeFacts, journal: Journal, checks: NodeChecks | NodeError) -> int:
    settings = facts.settings
    signals = _handle_signals()
    process_tree.adopt_orphans()
    heartbeat.start(settings.out_dir / "pulse")
    watchers = [_watch_signals(signals), process_tree.watch(facts.host, settings.stall_s)]
    watchers += [lease.watch(settings.lease, settings.stall_s)] if settings.lease else []
    shutdown = Shutdown(facts, journal)
    try:
        verdict = await run_watched(_run_role(facts, journal, checks, shutdown), *watchers)
        code = 0 if settings.joins else verdict.code  # a worker that knows how the job ended did its part
    except NodeError as error:
        verdict = Verdict.from_error(error, stage=journal.phase, host=facts.host)
        code = verdict.code
    except Exception as error:  # a bug: show it whole, and still shut down
        traceback.print_exc()
        cause = f"verl_node made a mistake: {type(error).__name__}: {error}."
        fix = "Report it with the lines above."
        verdict = Verdict(NodeError.code, "self", journal.phase, facts.host, cause, fix)
        code = verdict.code
    if code and verdict.host == facts.host:  # events of the kernel are the first cause
        kernel = cgroup_events.read(settings.memory_bytes)
        failure_class = kernel.failure_class or verdict.failure_class
        verdict = replace(verdict, cause=f"{kernel.text} {verdict.cause}".lstrip(), failure_class=failure_class)
    await shutdown.end(verdict)
    await shutdown.explain(verdict)
    await ended(asyncio.all_tasks() - {asyncio.current_task()})
    if settings.standalone:  # under Slurm launch.sh prints the last line
        print(verdict.sentence(), flush=True)  # noqa: T201
    return code


def _handle_signals() -> asyncio.Queue[str]:
    """Handle the signals that end a node; return a queue with the names of those that come."""
    names: asyncio.Queue[str] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, names.put_nowait, number.name)
    return names


async def _watch_signals(names: asyncio.Queue[str]) -> None:
    """Wait for the first signal. Raises EndedFromOutside."""
    raise EndedFromOutside(
        f"Ended from outside by {await names.get()}.",
        fix="Look for scancel, the time limit (sacct -j), or another node's verdict.",
    )


async def _run_role(facts: NodeFacts, journal: Journal, checks: NodeChecks | NodeError, shutdown: Shutdown) -> Verdict:
    """Run the head or a worker; a worker does not import the head's modules, half of its CPU time at start."""
    if isinstance(checks, NodeError):
        raise checks
    if facts.settings.joins:
        from verl_node.node import worker

        return await worker.follow(facts, journal, checks, shutdown)
    from verl_node.node import head

    return await head.lead(facts, journal, checks, shutdown)


def _settings(options: argparse.Namespace) -> Settings:
    settings = Settings.from_env(os.environ)
    if options.join:
        return settings.standalone_worker(options.join, gpus=options.gpus)
    if options.head:
        return settings.standalone_head(nodes=options.nodes, gpus=options.gpus)
    return settings


def _refuse(error: NodeError) -> int:
    """Print a verdict for bad settings; there is no host yet for which it could be written to a file."""
    verdict = Verdict.from_error(error, stage="checks", host=os.uname().nodename)
    print(verdict.sentence(), flush=True)  # noqa: T201
    return verdict.code


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="node", description=__doc__)
    role = parser.add_mutually_exclusive_group()
    role.add_argument("--head", action="store_true", help="start the head of a cluster without Slurm")
    role.add_argument("--join", metavar="HOST:PORT", help="join this head; `node --head` prints the command to type")
    parser.add_argument("--nodes", type=int, metavar="N", help="number of machines, including this one (--head)")
    parser.add_argument("--gpus", type=int, metavar="N", help="GPUs of each machine; by default all that are visible")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    CODE = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(CODE)  # does not wait for threads, either
