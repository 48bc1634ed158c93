"""Plans a training, and runs it as a child process on the head."""

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
from verl_node.training import attention, derived_overrides, external_modules, releases
from verl_node.training import recipe as recipes
from verl_node.training.metrics import MetricsWriter
from verl_node.training.recipe import Training
from verl_node.training.releases import Release
from verl_node.training.resume import resumed

CLUSTER = "cluster"  # not a recipe: the cluster stays up, and users submit jobs to it

_DAY_S = 86400
_ENDING_S = 30  # same as in slurm/lib/launch/requeue.sh


@dataclass(frozen=True)
class Plan:
    """The training, and the command that prepares its data and model on a node."""

    training: Training
    prepare: list[str]
    run_dir: Path

    @property
    def configuration(self) -> Path:
        """The file of the resolved configuration, for prepare and for users."""
        return self.run_dir / "configuration.json"

    @property
    def module(self) -> str:
        """The module of the trainer."""
        return self.training.argv[2]  # python3 -m MODULE


def plan(settings: Settings, identity: Identity, gpus: int) -> Plan | None:
    """Return the plan of the recipe on this allocation, None for a cluster that stays up.

    Raises BadSettings, CheckFailed, BadTrainingConfig, InputUnavailable.
    """
    if settings.recipe == CLUSTER:
        return None
    recipe = recipes.load(Path(settings.recipe))
    if gpus == 0:
        raise BadSettings(
            f"The recipe {recipe.name} needs GPUs, and the job has none on this node.",
            fix="Add --gpus-per-node=N to sbatch.",
        )
    if settings.run_dir is None:
        raise BadSettings("VERLJOB_RUN_DIR is unset.", fix="Set it to a folder that every node can write to.")
    if not identity.verl:
        raise CheckFailed(
            "verl is not installed.", fix="Use an image of this toolkit, or set VERLJOB_VERL to a checkout."
        )
    _require_cpus(releases.load(identity.verl), settings.allocation.cpus, gpus)
    training = recipes.make_training(
        recipe,
        settings.overrides,
        image_overrides=settings.image_overrides,
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
        flash_attn=attention.flash_attn_installed(),
        given_modules=settings.environ.get(external_modules.NAME, ""),
    )
    training = resumed(training, settings.attempt, shared=settings.shared_folders)
    return Plan(training, recipes.prepare_argv(training, settings.data_dir, settings.data_source), settings.run_dir)


def _expires(settings: Settings) -> float | None:
    """Return the deadline for a checkpoint, before the seconds of launch.sh's shutdown."""
    end = settings.allocation.end_time
    return None if end is None else end - _ENDING_S


def _require_cpus(release: Release, cpus: int, gpus: int) -> None:
    least = release.least_cpus(gpus)
    if cpus < least:
        raise BadSettings(
            f"A node of this job has {cpus} CPUs, and verl {release.series} needs {least} for {gpus} GPUs: its workers "
            "would wait for them forever.",
            fix=f"Request more: sbatch --cpus-per-task={least} (a few more let its other actors spread out).",
        )


async def run(plan: Plan, env: Mapping[str, str], steps: MetricsWriter, *watchers: Coroutine[Any, Any, None]) -> int:
    """Run the training unless a watcher raises; return its exit code, 128 + n if signal n killed it.

    Its output is printed line by line; the steps that verl logs become rows of metrics.jsonl.
    """

    def print_line(line: str) -> None:
        print(line, flush=True)  # noqa: T201
        steps.read_line(line)

    process = await Process.start(plan.training.argv, env, on_line=print_line)
    code = await run_watched(process.ended(), steps.follow(), *watchers)
    if code == 128 + signal.SIGTERM:  # without a container Slurm also sends TERM to the training
        await asyncio.sleep(OWN_SIGNAL_GRACE_S)
    await steps.catch_up()
    return code
