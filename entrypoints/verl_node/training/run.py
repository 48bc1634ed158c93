"""Plans a training and runs it as a child process on the head."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_node.control.channel import OWN_SIGNAL_GRACE_S
from verl_node.errors import BadSettings, CheckFailed
from verl_node.settings.identity import Identity
from verl_node.settings.settings import Settings
from verl_node.supervision.child import Process
from verl_node.supervision.waiting import run_watched
from verl_node.training import derived_overrides, releases
from verl_node.training import recipe as recipes
from verl_node.training.metrics_writer import MetricsWriter
from verl_node.training.recipe import Training
from verl_node.training.releases import Release
from verl_node.training.resume import continued

CLUSTER = "cluster"  # the recipe that is none: the cluster stays, and jobs are submitted to it

_DAY_S = 86400
_ENDING_S = 30  # slurm/lib/launch/requeue.sh keeps the same


@dataclass(frozen=True)
class Plan:
    """What will be run, and the command that makes data and model ready for it on a node."""

    training: Training
    prepare: list[str]
    run_dir: Path

    @property
    def configuration(self) -> Path:
        """Where the resolved configuration is kept, for prepare and for people."""
        return self.run_dir / "configuration.json"

    @property
    def module(self) -> str:
        """The module of the trainer."""
        return self.training.argv[2]  # python3 -m MODULE


def plan(settings: Settings, identity: Identity, gpus: int) -> Plan | None:
    """Return what the recipe means here, None for a cluster that stays.

    Raises BadSettings, CheckFailed, BadTrainingConfig, InputUnavailable.
    """
    if settings.recipe == CLUSTER:
        return None
    recipe = recipes.load(Path(settings.recipe))
    if gpus == 0:
        raise BadSettings(
            f"The recipe {recipe.name} needs GPUs and this node has none for the job.",
            fix="Add --gpus-per-node=N to sbatch.",
        )
    if settings.run_dir is None:
        raise BadSettings("VERLJOB_RUN_DIR is unset.", fix="Set it to a folder that every node can write.")
    if not identity.verl:
        raise CheckFailed(
            "verl is not installed here.", fix="Use an image of this toolkit, or set VERLJOB_VERL to a checkout."
        )
    _require_cpus(releases.load(identity.verl), settings.allocation.cpus, gpus)
    training = recipes.training(
        recipe,
        settings.overrides,
        verl_version=identity.verl,
        nodes=settings.allocation.nodes,
        gpus_per_node=gpus,
        run_dir=settings.run_dir,
        checkpoints=settings.checkpoints,
        data_dir=settings.data_dir,
        model=settings.model or None,
        wandb=settings.logs_to_wandb,
        expires=None if derived_overrides.EXPIRES in settings.environ else _expires(settings),
        long=settings.allocation.end_time is None or settings.allocation.end_time - time.time() > _DAY_S,
    )
    training = continued(training, settings.attempt, shared=settings.shared_folders)
    return Plan(training, recipes.preparation(training, settings.data_dir, settings.data_source), settings.run_dir)


def _expires(settings: Settings) -> float | None:
    """Return when a checkpoint has to be written: an end by TERM takes seconds, and launch.sh wants some of them."""
    end = settings.allocation.end_time
    return None if end is None else end - _ENDING_S


def _require_cpus(release: Release, cpus: int, gpus: int) -> None:
    least = release.least_cpus(gpus)
    if cpus < least:
        raise BadSettings(
            f"A node of this job has {cpus} CPUs, and verl {release.series} needs {least} beside {gpus} GPUs: its "
            "workers would wait for them without end.",
            fix=f"Ask for more: sbatch --cpus-per-task={least} (a few more let its other actors spread out).",
        )


async def run(plan: Plan, env: Mapping[str, str], steps: MetricsWriter, *watchers: Coroutine[Any, Any, None]) -> int:
    """Run it unless a watcher raises; return its exit code, 128 + n where signal n killed it.

    Its output is ours, line by line; the steps that verl logs become rows of metrics.jsonl.
    """

    def take(line: str) -> None:
        print(line, flush=True)  # noqa: T201
        steps.line(line)

    process = await Process.start(plan.training.argv, env, on_line=take)
    code = await run_watched(process.ended(), steps.follow(), *watchers)
    if code == 128 + signal.SIGTERM:  # without a container Slurm's TERM goes to the training as well as to us
        await asyncio.sleep(OWN_SIGNAL_GRACE_S)
    await steps.catch_up()
    return code
