"""One fault, made and judged: the same steps for every kind."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from slurm.testbed import Cluster
from tests.faults import aftermath
from tests.faults.kinds import DEFAULT, Kind, Patience
from tests.faults.neighbour import Neighbour
from tests.faults.scene import STARTS_S, Runtime, Scene
from tests.support.cluster.launches import Launch, submit, wait_until

HANGS_S = 120.0
"""When a job that should have ended is given up; it is cancelled then."""
IDLE_S = 60
BACK_S = 6.0
"""How long a node.sh that was not killed takes for its end, with something to spare."""
LOST_S = 600
"""SlurmdTimeout of the rehearsal cluster is five minutes, and it is looked at once in a while; the job is then
completing until the step daemon of the living node gives up that of the lost one."""
GOING = ("RUNNING", "CONFIGURING", "SIGNALING")
"""States of a job whose batch script runs; the last one is Slurm's for a moment after `scancel --signal`."""


@dataclass
class Outcome:
    """What came of a fault. Times in seconds: from the fault to the job's end, and from there to clean nodes."""

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
class Ground:
    """Where the drills take place."""

    cluster: Cluster
    runtime: Runtime
    stub: str
    neighbour: Neighbour
    patience: Patience = DEFAULT


def drill(kind: Kind, ground: Ground, *, slack: float = 1.0) -> Outcome:
    """Make the fault and look at what comes of it; ``slack`` stretches the limits, on a machine that is busy."""
    outcome = Outcome(kind, ground.runtime.name, kind.due_s(ground.patience))
    scene = Scene(ground.cluster, ground.runtime, ground.stub, nodes=kind.nodes)
    scene.environment.update(ground.patience.environment())
    nodes = ground.cluster.nodes[: kind.nodes]
    with scene.undo:
        began = _begin(kind, scene)
        _end(kind, scene, began, outcome, slack)
        awake = [node for node in nodes if node not in scene.frozen]
        outcome.clean_s, dirt = aftermath.wait_clean(ground.cluster, awake, aftermath.CLEAN_S * slack)
        outcome.problems += dirt
        if kind.state == "NODE_FAIL":
            wait_until(lambda: ground.cluster.job(scene.job.id).state == kind.state, LOST_S, "NODE_FAIL")
    if kind.state == "NODE_FAIL":
        _restart_slurmd(scene)
    if scene.frozen:
        ground.cluster.wait_ready(timeout_s=LOST_S)
        outcome.problems += _returned(scene)
    elif outcome.problems:
        ground.cluster.wait_ready(timeout_s=IDLE_S)
    _judge(kind, scene.job, outcome)
    if kind.spares:
        outcome.problems += ground.neighbour.troubled(nodes)
    else:
        ground.neighbour.move_in([node for node in nodes if ground.neighbour.troubled([node])])
    ground.cluster.wait_ready(timeout_s=IDLE_S)
    return outcome


def _begin(kind: Kind, scene: Scene) -> float:
    """Submit the job and make the fault; return when that was."""
    kind.prepare(scene)
    scene.submit()
    began = time.monotonic()
    if kind.starts:
        scene.job.wait_for("stub training runs", STARTS_S)
        began = time.monotonic()
        kind.inject(scene)
    return scene.happened or began


def _end(kind: Kind, scene: Scene, began: float, outcome: Outcome, slack: float) -> None:
    """Wait for what ends first in this kind: the job, or, where Slurm takes its time, the verdict of a survivor."""
    limit_s = outcome.due_s + kind.limit_s * (slack - 1)
    done = _told(scene.job, kind.told) if kind.told.startswith("nodes/") else _over(scene.job)
    try:
        wait_until(done, max(limit_s, HANGS_S), "end of the job")
    except AssertionError:
        outcome.problems.append(f"the job did not end in {max(limit_s, HANGS_S):.0f} s")
        scene.job.cancel()
    outcome.end_s = time.monotonic() - began
    if outcome.end_s > limit_s:
        outcome.problems.append(f"it took {outcome.end_s:.1f} s, at most {limit_s:.0f} s are allowed")


def _restart_slurmd(scene: Scene) -> None:
    """Do what an operator does with a node that is DOWN: its slurmd tells slurmctld that it is there.

    slurmctld seldom asks such a node again: more than 700 s after its freeze ended were seen. runsv starts slurmd.
    """
    for node in sorted(scene.frozen):
        scene.on(node, "pkill", "-x", "slurmd")


def _returned(scene: Scene) -> list[str]:
    """What is left on machines that are back.

    Slurm kills node.sh in the moment that a lost machine is back, often before it can act (SIGKILL by slurmstepd, seen
    with strace). The container has ended by its lease then; the files wait for the account's next job there.
    """
    nodes = sorted(scene.frozen)
    if not aftermath.wait_clean(scene.cluster, nodes, BACK_S)[1]:
        return []
    alive = aftermath.wait_for(lambda: aftermath.at_work(aftermath.left(scene.cluster, nodes)), aftermath.CLEAN_S)[1]
    for node in nodes:
        flags = ["--nodes=1", f"--nodelist={node}", "--gpus-per-node=1"]
        submit(scene.cluster, [scene.stub], flags=flags, environment=scene.runtime.environment()).wait(STARTS_S)
    return alive + aftermath.wait_clean(scene.cluster, nodes, aftermath.CLEAN_S)[1]


def _over(job: Launch) -> Callable[[], bool]:
    seen: list[str] = []

    def over() -> bool:
        seen.append(job.cluster.job(job.id).state)
        return seen[-1] not in GOING and not (seen[-1] == "PENDING" and set(seen) == {"PENDING"})

    return over


def _told(job: Launch, path: str) -> Callable[[], bool]:
    return lambda: job.read(path, missing="") != ""


def _judge(kind: Kind, job: Launch, outcome: Outcome) -> None:
    """Compare what the job left with what the matrix says."""
    wait_until(lambda: job.cluster.job(job.id).state not in (*GOING, "COMPLETING"), HANGS_S, "state of the job")
    ended = job.cluster.job(job.id)
    outcome.state = ended.state
    expect(outcome, "state", ended.state, kind.state)
    if not kind.told.startswith("nodes/"):
        expect(outcome, "Slurm's exit code", str(ended.code), kind.job_code or str(kind.code))
    last = (job.output().strip().splitlines() or [""])[-1]
    told = _verdict(kind, job, last)
    outcome.code, outcome.cause = int(told.get("code", -1)), told.get("cause", "")
    for name in ("code", "stage", "host"):
        expect(outcome, name, told.get(name, ""), str(getattr(kind, name)))
    for word in kind.words:
        if not re.search(word, f"{outcome.cause} {told.get('fix', '')}"):
            outcome.problems.append(f"the cause does not say {word!r}: {outcome.cause}")
    if kind.told.startswith("output") and outcome.cause not in last:
        outcome.problems.append(f"the last line does not tell the cause, {outcome.cause!r}: {last}")
    for node_id, node in enumerate(job.cluster.nodes[: kind.nodes] if kind.logs else []):
        if not job.read(f"nodes/{node_id}-{node}/ray/raylet.out", missing=""):
            outcome.problems.append(f"no raylet.out of {node} in the run directory")


def _verdict(kind: Kind, job: Launch, last: str) -> dict[str, str]:
    """What was told, in the place where this kind tells it."""
    if kind.told.startswith("nodes/"):
        lines = job.read(kind.told, missing="").splitlines()
        return dict(line.split("=", 1) for line in lines)
    if kind.told == "output":
        found = re.match(r"verdict: (?P<code>\d+) \((?P<stage>\S+) on (?P<host>\S+)\): (?P<cause>.*)", last)
        return found.groupdict() if found else {}
    return {name: str(value) for name, value in json.loads(job.read("result.json", missing="{}")).items()}


def expect(outcome: Outcome, what: str, seen: str, wanted: str) -> None:
    """Note a difference; ``wanted`` may name several, by `|`."""
    if seen not in wanted.split("|"):
        outcome.problems.append(f"{what} is {seen or 'nothing'}, not {wanted}")
