"""`invoke dev.chaos`: makes every fault on a rehearsal cluster, and prints the matrix of their outcomes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from slurm.errors import SlurmError
from slurm.testbed import Cluster
from tests.faults import outages, survival
from tests.faults.drill import HANGS_S, DrillSetup, Outcome, drill
from tests.faults.kinds import KINDS, Kind, named
from tests.faults.neighbour import Neighbour
from tests.faults.scene import ACCOUNT, Runtime
from tests.support.cluster import many_jobs
from tests.support.cluster.cluster_setup import load_for_bare, load_for_docker, load_for_podman, prepare

# Patterns by which `pgrep -f` finds a runtime's foreground process.
CLIENTS = {"docker": "[d]ocker run", "podman": "[p]odman run", "bare": ""}
LOADERS = {"docker": load_for_docker, "podman": load_for_podman, "bare": load_for_bare}
# No fault: eight jobs of two accounts, which could take each other's ports or join each other's Ray.
CROWD, CROWD_JOBS, CROWD_ROUNDS = "crowd", 8, 10
STEPS = {"docker": 60, "podman": 60, "bare": 600}
"""Of each training that has to survive outages: with bare a stand-in that makes one a second (survival.py)."""
HEAD_LINE = f"{'kind':<32} {'runtime':<8} {'code':<9} {'state':<10} {'end':>6} {'bar':>5} {'clean':>6}  result"


def select_kinds(only: str, runtime: str) -> list[Kind]:
    """Return the kinds of this runtime, or those in ``only``, by comma. Raises SlurmError for an unknown name."""
    others = {CROWD, *(outage.name for outage in outages.OUTAGES)}
    kinds = [named(name) for name in only.split(",") if name not in others] if only else list(KINDS)
    return [kind for kind in kinds if runtime in kind.runtimes]


def select_outages(only: str, runtime: str) -> list[outages.Outage]:
    """Return the outages of this runtime, or those of them in ``only``, by comma."""
    names = only.split(",")
    return [outage for outage in outages.OUTAGES if runtime in outage.runtimes and (not only or outage.name in names)]


@contextmanager
def started_cluster(base: str, suffix: str) -> Iterator[Cluster]:
    """Start a rehearsal cluster of two nodes, and remove it in the end."""
    cluster = Cluster(2, name=f"{os.environ.get('VERLJOB_TESTBED') or 'verljob'}-{suffix}")
    cluster.up(base)
    try:
        yield cluster
    finally:
        cluster.down()


def run(
    image: str, base: str, *, only: str = "", runtime: str = "docker", rounds: int = 1, log_line: Callable[[str], None]
) -> int:
    """Drill every kind ``rounds`` times; return how many drills failed. Raises SlurmError."""
    kinds = select_kinds(only, runtime)
    require_known(runtime)
    with started_cluster(base, "chaos") as cluster:
        environment, stub = prepare(cluster, image)
        neighbour = Neighbour(cluster, environment["VERLJOB_IMAGE"])
        neighbour.start(cluster.nodes)
        reference = environment["VERLJOB_IMAGE"] if runtime == "docker" else LOADERS[runtime](cluster, image)
        setup = DrillSetup(cluster, make_runtime(runtime, reference), stub, neighbour)
        log_line(HEAD_LINE)
        outcomes = []
        for kind in kinds * rounds:
            outcomes.append(drill_safely(kind, setup))
            log_line(format_outcome(outcomes[-1]))
        problems = survival.run(
            cluster,
            setup.runtime,
            [*select_outages(only, runtime)] * rounds,
            steps=STEPS[runtime],
            report=lambda survival_: log_line(format_survival(survival_)),
        )
        for problem in problems:
            log_line(f"    {problem}")
        with_crowd = CROWD in only.split(",") or (not only and runtime == "docker")  # its containers are Docker's
        crowded = _crowd(cluster, environment, rounds, log_line) if with_crowd else 0
    if outcomes:
        log_line(summarize(outcomes))
    return sum(bool(outcome.problems) for outcome in outcomes) + len(problems) + crowded


def _crowd(cluster: Cluster, environment: Mapping[str, str], rounds: int, log_line: Callable[[str], None]) -> int:
    """Fill the nodes with jobs of two accounts; return the number of collisions and cross-joins."""
    tally = many_jobs.run(cluster, environment, jobs=CROWD_JOBS, rounds=CROWD_ROUNDS * rounds, log_line=log_line)
    wrong = [*tally.collisions, *tally.cross_joins]
    log_line(
        "\n    ".join(
            [f"{CROWD}: {tally.jobs} jobs, {CROWD_JOBS} at once: {len(wrong)} collisions or cross-joins", *wrong]
        )
    )
    return len(wrong)


def drill_safely(kind: Kind, setup: DrillSetup, *, slack: float = 1.0) -> Outcome:
    """Drill; if the drill fails with an error, cancel its job and wait until the nodes take the next one."""
    try:
        return drill(kind, setup, slack=slack)
    except (AssertionError, SlurmError) as error:
        setup.cluster.host("login").run(["scancel", "--user", ACCOUNT])
        setup.cluster.wait_ready(timeout_s=HANGS_S)
        problems = [f"the drill was aborted: {error}"]
        return Outcome(kind, setup.runtime.name, kind.due_s(setup.patience), problems=problems)


def require_known(runtime: str) -> None:
    """Raise SlurmError for a runtime that the faults do not support."""
    if runtime not in CLIENTS:
        raise SlurmError(f"runtime {runtime!r} has no faults; choose one of: {', '.join(CLIENTS)}.")


def make_runtime(name: str, image: str) -> Runtime:
    require_known(name)
    return Runtime(name, image, CLIENTS[name])


def format_outcome(outcome: Outcome) -> str:
    """Format the line of the matrix, and a line for each problem."""
    kind = outcome.kind
    codes = f"{kind.code}/{outcome.code}"
    times = f"{outcome.end_s:>6.1f} {outcome.due_s:>5.0f} {outcome.clean_s:>6.1f}"
    result = "FAIL" if outcome.problems else "pass"
    line = f"{kind.name:<32} {outcome.runtime:<8} {codes:<9} {outcome.state:<10} {times}  {result}"
    return "\n".join([line, *(f"    {problem}" for problem in outcome.problems)])


def format_survival(survived: survival.Survival) -> str:
    """Format the line of an outage, and a line for each problem."""
    outage = survived.outage
    times = f"{outage.lasts_s:>4.0f} s, {survival.MORE_STEPS} more steps {survived.next_step_s:>5.1f} s later"
    result = "FAIL" if survived.problems else "pass"
    line = f"{outage.name:<32} {survived.runtime:<8} {survived.node:<4} {times}  {result}"
    return "\n".join([line, *(f"    {problem}" for problem in survived.problems)])


def summarize(outcomes: Sequence[Outcome]) -> str:
    """Format the number of passes and the largest times, of the kinds whose end is the toolkit's decision."""
    ours = [outcome for outcome in outcomes if outcome.kind.starts and outcome.kind.state == "FAILED"] or list(outcomes)
    slowest = max(ours, key=lambda outcome: outcome.end_s)
    dirtiest = max(outcomes, key=lambda outcome: outcome.clean_s)
    passed = sum(not outcome.problems for outcome in outcomes)
    return (
        f"{passed} of {len(outcomes)} pass; worst end {slowest.end_s:.1f} s ({slowest.kind.name}), "
        f"worst clean {dirtiest.clean_s:.1f} s ({dirtiest.kind.name})"
    )
