"""Drill of one fault: inject it, wait for the job's end, compare the outcome with the matrix, and restore the nodes."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from slurm.testbed import Cluster
from tests.faults import leftovers
from tests.faults.kinds import DEFAULT, Kind, Patience
from tests.faults.neighbour import Neighbour
from tests.faults.scene import STARTS_S, Runtime, Scene
from tests.support.cluster.launches import Launch, submit, wait_until

HANGS_S = 120.0
"""Timeout after which a job that should have ended is cancelled."""
IDLE_S = 60
BACK_S = 6.0
"""Seconds that a node.sh takes to end if it was not killed, with a margin."""
LOST_S = 600
"""SlurmdTimeout of the rehearsal cluster is five minutes, and Slurm checks it at intervals; the job is then completing
until the step daemon of the living node times out on that of the lost one."""
RUNNING = ("RUNNING", "CONFIGURING", "SIGNALING")
"""States of a job whose batch script runs; the last one is Slurm's for a moment after `scancel --signal`."""


@dataclass
class Outcome:
    """Outcome of a fault. Times in seconds: from the fault to the job's end, and from there to clean nodes."""

    kind: Kind
    runtime: str
    due_s: float
    code: int | None = None
    state: str = ""
    end_s: float = 0.0
    clean_s: float = 0.0
    cause: str = ""
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class DrillSetup:
    """Cluster, runtime, recipe and neighbour that drills share."""

    cluster: Cluster
    runtime: Runtime
    stub: str
    neighbour: Neighbour
    patience: Patience = DEFAULT


def drill(kind: Kind, setup: DrillSetup, *, slack: float = 1.0) -> Outcome:
    """Make the fault and check its outcome; ``slack`` multiplies the limits, for a busy machine."""
    outcome = Outcome(kind, setup.runtime.name, kind.due_s(setup.patience))
    scene = Scene(setup.cluster, setup.runtime, setup.stub, nodes=kind.nodes)
    scene.environment.update(setup.patience.environment())
    nodes = setup.cluster.nodes[: kind.nodes]
    with scene.undo:
        began = _inject(kind, scene)
        _await_end(kind, scene, began, outcome, slack)
        awake = [node for node in nodes if node not in scene.frozen]
        outcome.clean_s, left = leftovers.wait_clean(setup.cluster, awake, leftovers.CLEAN_S * slack)
        outcome.problems += left
        if kind.state == "NODE_FAIL":
            wait_until(lambda: setup.cluster.job(scene.job.id).state == kind.state, LOST_S, "NODE_FAIL")
    if kind.state == "NODE_FAIL":
        _restart_slurmd(scene)
    if scene.frozen:
        setup.cluster.wait_ready(timeout_s=LOST_S)
        outcome.problems += _leftovers_after_return(scene)
    elif outcome.problems:
        setup.cluster.wait_ready(timeout_s=IDLE_S)
    _check_job(kind, scene.job, outcome)
    if kind.spares:
        outcome.problems += setup.neighbour.problems(nodes)
    else:
        setup.neighbour.start([node for node in nodes if setup.neighbour.problems([node])])
    setup.cluster.wait_ready(timeout_s=IDLE_S)
    return outcome


def _inject(kind: Kind, scene: Scene) -> float:
    """Submit the job and make the fault; return the time of the fault."""
    kind.prepare(scene)
    scene.submit()
    began = time.monotonic()
    if kind.starts:
        scene.job.wait_for("stub training runs", STARTS_S)
        began = time.monotonic()
        kind.inject(scene)
    return scene.happened or began


def _await_end(kind: Kind, scene: Scene, began: float, outcome: Outcome, slack: float) -> None:
    """Wait for the end of the job; if Slurm ends it late, for the verdict of a surviving node."""
    limit_s = outcome.due_s + kind.limit_s * (slack - 1)
    by_verdict = kind.reported_in.startswith("nodes/")
    ended = _file_appears(scene.job, kind.reported_in) if by_verdict else _job_ends(scene.job)
    try:
        wait_until(ended, max(limit_s, HANGS_S), "end of the job")
    except AssertionError:
        outcome.problems.append(f"the job did not end in {max(limit_s, HANGS_S):.0f} s")
        scene.job.cancel()
    outcome.end_s = time.monotonic() - began
    if outcome.end_s > limit_s:
        outcome.problems.append(f"the job ended after {outcome.end_s:.1f} s; the limit is {limit_s:.0f} s")


def _restart_slurmd(scene: Scene) -> None:
    """Restart slurmd on a node that is DOWN, as an operator does, so that it registers with slurmctld.

    slurmctld seldom polls such a node: more than 700 s after its freeze ended were seen. runsv starts slurmd.
    """
    for node in sorted(scene.frozen):
        scene.on(node, "pkill", "-x", "slurmd")


def _leftovers_after_return(scene: Scene) -> list[str]:
    """List the leftovers on machines that are back, after another job of the account has run on each.

    Slurm kills node.sh as soon as a lost machine is back, often before it can act (SIGKILL by slurmstepd, seen with
    strace). The container has ended by its lease then; the account's next job on the node removes the files.
    """
    nodes = sorted(scene.frozen)
    if not leftovers.wait_clean(scene.cluster, nodes, BACK_S)[1]:
        return []

    def active() -> list[str]:
        return leftovers.active(leftovers.leftovers(scene.cluster, nodes))

    alive = leftovers.wait_for_none(active, leftovers.CLEAN_S)[1]
    for node in nodes:
        flags = ["--nodes=1", f"--nodelist={node}", "--gpus-per-node=1"]
        submit(scene.cluster, [scene.stub], flags=flags, environment=scene.runtime.environment()).wait(STARTS_S)
    return alive + leftovers.wait_clean(scene.cluster, nodes, leftovers.CLEAN_S)[1]


def _job_ends(job: Launch) -> Callable[[], bool]:
    states: list[str] = []

    def ended() -> bool:
        states.append(job.cluster.job(job.id).state)
        return states[-1] not in RUNNING and not (states[-1] == "PENDING" and set(states) == {"PENDING"})

    return ended


def _file_appears(job: Launch, path: str) -> Callable[[], bool]:
    return lambda: job.read(path, missing="") != ""


def _check_job(kind: Kind, job: Launch, outcome: Outcome) -> None:
    """Compare state, exit code, verdict and logs of the job with the matrix."""
    wait_until(lambda: job.cluster.job(job.id).state not in (*RUNNING, "COMPLETING"), HANGS_S, "state of the job")
    ended = job.cluster.job(job.id)
    outcome.state = ended.state
    compare(outcome, "state", ended.state, kind.state)
    if not kind.reported_in.startswith("nodes/"):
        compare(outcome, "Slurm's exit code", str(ended.code), kind.job_code or str(kind.code))
    last_line = (job.output().strip().splitlines() or [""])[-1]
    verdict = _verdict(kind, job, last_line)
    outcome.code, outcome.cause = int(verdict.get("code", -1)), verdict.get("cause", "")
    for name in ("code", "stage", "host"):
        compare(outcome, name, verdict.get(name, ""), str(getattr(kind, name)))
    for pattern in kind.causes:
        if not re.search(pattern, f"{outcome.cause} {verdict.get('fix', '')}"):
            outcome.problems.append(f"the cause does not match {pattern!r}: {outcome.cause}")
    if kind.reported_in.startswith("output") and outcome.cause not in last_line:
        outcome.problems.append(f"the last line does not have the cause {outcome.cause!r}: {last_line}")
    for node_id, node in enumerate(job.cluster.nodes[: kind.nodes] if kind.logs else []):
        if not job.read(f"nodes/{node_id}-{node}/ray/raylet.out", missing=""):
            outcome.problems.append(f"no raylet.out of {node} in the run directory")


def _verdict(kind: Kind, job: Launch, last_line: str) -> dict[str, str]:
    """Read the verdict from the file or the line that this kind reports it in."""
    if kind.reported_in.startswith("nodes/"):
        lines = job.read(kind.reported_in, missing="").splitlines()
        return dict(line.split("=", 1) for line in lines)
    if kind.reported_in == "output":
        match = re.match(r"verdict: (?P<code>\d+) \((?P<stage>\S+) on (?P<host>\S+)\): (?P<cause>.*)", last_line)
        return match.groupdict() if match else {}
    return {name: str(value) for name, value in json.loads(job.read("result.json", missing="{}")).items()}


def compare(outcome: Outcome, what: str, seen: str, expected: str) -> None:
    """Record a difference; ``expected`` may have several values, by `|`."""
    if seen not in expected.split("|"):
        outcome.problems.append(f"{what} is {seen or 'empty'}, expected {expected}")
