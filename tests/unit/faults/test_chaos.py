"""`invoke dev.chaos` drills every fault, makes outages, and counts failures; with --hours outages are random."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from slurm.errors import SlurmError
from tests.faults import chaos, soak, survival
from tests.faults.drill import DrillSetup, Outcome
from tests.faults.kinds import Kind
from tests.faults.outages import Outage
from tests.faults.survival import Survival

CLUSTER = SimpleNamespace(nodes=["n1", "n2"])


class Trial:
    """A training that survives every outage but `connection-reset`, and ends after ten outages."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> int:
        return self.steps

    def has_ended(self) -> bool:
        return self.steps >= 3000

    def survive(self, outage: Outage, node: str = "") -> Survival:
        self.steps += 300
        problems = ["the job ended at step 300"] if outage.name == "connection-reset" else []
        return Survival(outage, "docker", node or outage.nodes[0], problems=problems)

    def finish(self) -> list[str]:
        return []


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace cluster and trainings; returns the steps that were made."""
    steps: list[str] = []

    @contextmanager
    def started_cluster(base: str, suffix: str) -> Iterator[Any]:
        steps.append(f"start {suffix} on {base}")
        yield CLUSTER
        steps.append("remove")

    def load(cluster: object, image: str) -> str:
        steps.append(f"load {image}")
        return image

    monkeypatch.setattr(chaos, "started_cluster", started_cluster)
    monkeypatch.setattr(chaos, "LOADERS", {"docker": load, "podman": load, "bare": load})
    monkeypatch.setattr(chaos, "prepare", lambda cluster, image: ({"VERLJOB_IMAGE": image}, "stub.yaml"))
    monkeypatch.setattr(chaos, "Neighbour", lambda *_: SimpleNamespace(start=lambda nodes: None))
    monkeypatch.setattr(survival.Trial, "begin", lambda *_: Trial())
    monkeypatch.setattr(soak.cluster_setup, "copy_checkout", lambda cluster: steps.append("copy"))
    monkeypatch.setattr(soak, "PAUSE_S", (0.0, 0.0))
    return steps


def fail_gcs(kind: Kind, setup: DrillSetup) -> Outcome:
    problems = ["the job did not end in 120 s"] if kind.name == "gcs-killed" else []
    return Outcome(kind, setup.runtime.name, 10, code=kind.code, state=kind.state, problems=problems)


def test_failed_drills_and_outages_are_counted(fakes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "drill_safely", fail_gcs)
    lines: list[str] = []
    only = "gcs-killed,srun-killed,connection-reset,node-sh-paused"

    failed = chaos.run("verl.cpu", "base", only=only, runtime="podman", rounds=2, log_line=lines.append)

    assert failed == 4
    assert fakes == ["start chaos on base", "load verl.cpu", "remove"]
    assert [line.split()[0] for line in lines[1:5]] == ["gcs-killed", "srun-killed"] * 2
    assert sum(line.splitlines()[0].endswith("FAIL") for line in lines) == 4
    assert lines[-1].startswith("2 of 4 pass; ")


def test_an_unknown_runtime_is_an_error_before_a_cluster_starts(fakes: list[str]) -> None:
    with pytest.raises(SlurmError, match=r"enroot.*docker, podman, bare"):
        chaos.run("verl.cpu", "base", runtime="enroot", log_line=print)
    with pytest.raises(SlurmError, match=r"enroot.*docker, podman, bare"):
        soak.run("verl.cpu", "base", hours=1, only="", runtime="enroot", seed=1, log_line=print)

    assert fakes == []


def test_random_outages_are_made_until_the_time_is_over(fakes: list[str]) -> None:
    lines: list[str] = []

    failed = soak.run(
        "verl.cpu",
        "base",
        hours=0.1 / 3600,
        only="connection-reset,packets-lost",
        runtime="docker",
        seed=7,
        log_line=lines.append,
    )

    figure = lines[-failed - 1]
    assert fakes == ["start soak on base", "copy", "load verl.cpu", "remove"]
    assert lines[0] == "seed 7"
    assert failed == sum("connection-reset" in line and "FAIL" in line for line in lines) > 0
    assert " connection-reset, " in figure
    assert figure.endswith(f"trainings of 300 steps: {failed} false ends or other problems")
