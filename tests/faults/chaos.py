"""`invoke dev.chaos`: every kind of fault on a rehearsal cluster of its own, and the matrix of what came of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from slurm.errors import SlurmError
from slurm.testbed import Cluster
from tests.faults import outages, survival
from tests.faults.drill import HANGS_S, Ground, Outcome, drill
from tests.faults.kinds import KINDS, Kind, named
from tests.faults.neighbour import Neighbour
from tests.faults.scene import ACCOUNT, Runtime
from tests.support.cluster import many_jobs
from tests.support.cluster.cluster_setup import bring_for_bare, bring_for_podman, prepare

# What `pgrep -f` finds a runtime's foreground process by.
CLIENTS = {"docker": "[d]ocker run", "podman": "[p]odman run", "bare": ""}
# No fault, but the other thing that many jobs on a node can do to each other.
CROWD, CROWD_JOBS, CROWD_ROUNDS = "crowd", 8, 10
STEPS = {"docker": 60, "podman": 60, "bare": 600}
"""Of each training that goes through outages: with bare a stand-in that makes one a second (survival.py)."""
HEAD_LINE = f"{'kind':<32} {'runtime':<8} {'code':<9} {'state':<10} {'end':>6} {'bar':>5} {'clean':>6}  result"


def chosen(only: str, runtime: str) -> list[Kind]:
    """Return the kinds of this runtime, or those named by comma; raises SlurmError for a name that is none."""
    others = {CROWD, *(outage.name for outage in outages.OUTAGES)}
    kinds = [named(name) for name in only.split(",") if name not in others] if only else list(KINDS)
    return [kind for kind in kinds if runtime in kind.runtimes]


def to_survive(only: str, runtime: str) -> list[outages.Outage]:
    """Return the outages of this runtime, or those of them that are named by comma."""
    named_ones = only.split(",")
    return [each for each in outages.OUTAGES if runtime in each.runtimes and (not only or each.name in named_ones)]


def run(
    image: str, base: str, *, only: str = "", runtime: str = "docker", rounds: int = 1, say: Callable[[str], None]
) -> int:
    """Drill every kind ``rounds`` times; return how many drills failed. Raises SlurmError."""
    kinds = chosen(only, runtime)
    runtime_of(runtime, "")  # before anything is started for one that is unknown
    cluster = Cluster(2, name=f"{os.environ.get('VERLJOB_TESTBED') or 'verljob'}-chaos")
    cluster.up(base)
    try:
        environment, stub = prepare(cluster, image)
        neighbour = Neighbour(cluster, environment["VERLJOB_IMAGE"])
        neighbour.move_in(cluster.nodes)
        bring = {"podman": bring_for_podman, "bare": bring_for_bare}.get(runtime)
        reference = bring(cluster, image) if bring else environment["VERLJOB_IMAGE"]
        ground = Ground(cluster, runtime_of(runtime, reference), stub, neighbour)
        say(HEAD_LINE)
        outcomes = []
        for kind in kinds * rounds:
            outcomes.append(attempt(kind, ground))
            say(row(outcomes[-1]))
        survived = [*to_survive(only, runtime)] * rounds
        ended = survival.run(
            cluster, ground.runtime, survived, steps=STEPS[runtime], say=lambda one: say(survived_row(one))
        )
        for problem in ended:
            say(f"    {problem}")
        asked = CROWD in only.split(",") or (not only and runtime == "docker")  # its containers are Docker's
        crowded = _crowd(cluster, environment, rounds, say) if asked else 0
    finally:
        cluster.down()
    if outcomes:
        say(worst(outcomes))
    return sum(bool(outcome.problems) for outcome in outcomes) + len(ended) + crowded


def _crowd(cluster: Cluster, environment: Mapping[str, str], rounds: int, say: Callable[[str], None]) -> int:
    """Fill the nodes with jobs of two accounts; return how many collisions and cross-joins there were."""
    tally = many_jobs.run(cluster, environment, jobs=CROWD_JOBS, rounds=CROWD_ROUNDS * rounds, say=say)
    wrong = [*tally.collisions, *tally.cross_joins]
    say(
        "\n    ".join(
            [f"{CROWD}: {tally.jobs} jobs, {CROWD_JOBS} at once: {len(wrong)} collisions or cross-joins", *wrong]
        )
    )
    return len(wrong)


def attempt(kind: Kind, ground: Ground, *, slack: float = 1.0) -> Outcome:
    """Drill, and leave nodes that take the next job when the drill itself breaks off."""
    try:
        return drill(kind, ground, slack=slack)
    except (AssertionError, SlurmError) as error:
        ground.cluster.host("login").run(["scancel", "--user", ACCOUNT])
        ground.cluster.wait_ready(timeout_s=HANGS_S)
        problems = [f"the drill broke off: {error}"]
        return Outcome(kind, ground.runtime.name, kind.due_s(ground.patience), problems=problems)


def runtime_of(name: str, image: str) -> Runtime:
    """Return the runtime of this name; raises SlurmError for one whose parts are not known here."""
    if name not in CLIENTS:
        raise SlurmError(f"The faults are not written for the runtime {name!r}; they are for: {', '.join(CLIENTS)}.")
    return Runtime(name, image, CLIENTS[name])


def row(outcome: Outcome) -> str:
    """Return the line of the matrix, and a line for each thing that is not as it has to be."""
    kind = outcome.kind
    seen = f"{kind.code}/{outcome.code}"
    times = f"{outcome.end_s:>6.1f} {outcome.due_s:>5.0f} {outcome.clean_s:>6.1f}"
    result = "FAIL" if outcome.problems else "pass"
    line = f"{kind.name:<32} {outcome.runtime:<8} {seen:<9} {outcome.state:<10} {times}  {result}"
    return "\n".join([line, *(f"    {problem}" for problem in outcome.problems)])


def survived_row(survived: survival.Survived) -> str:
    """Return the line of an outage, and a line for each thing that is not as it has to be."""
    outage = survived.outage
    times = f"{outage.lasts_s:>4.0f} s, {survival.MORE_STEPS} more steps {survived.next_step_s:>5.1f} s later"
    result = "FAIL" if survived.problems else "pass"
    line = f"{outage.name:<32} {survived.runtime:<8} {survived.node:<4} {times}  {result}"
    return "\n".join([line, *(f"    {problem}" for problem in survived.problems)])


def worst(outcomes: Sequence[Outcome]) -> str:
    """Return the line with the largest times, of the kinds that we decide."""
    ours = [outcome for outcome in outcomes if outcome.kind.starts and outcome.kind.state == "FAILED"] or list(outcomes)
    slow = max(ours, key=lambda outcome: outcome.end_s)
    dirty = max(outcomes, key=lambda outcome: outcome.clean_s)
    passed = sum(not outcome.problems for outcome in outcomes)
    return (
        f"{passed} of {len(outcomes)} pass; worst end {slow.end_s:.1f} s ({slow.kind.name}), "
        f"worst clean {dirty.clean_s:.1f} s ({dirty.kind.name})"
    )
