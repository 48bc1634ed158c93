"""A training run on the head: check the configuration, prepare, train, watch checkpoints and hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from verl_node.configuration import child
from verl_node.control.messages import Prepare, Prepared, StacksWritten, Step, TakeStacks
from verl_node.control.server import ControlServer
from verl_node.errors import InputUnavailable
from verl_node.gpu.usage import Watch
from verl_node.inputs import lookup, prepare_child
from verl_node.node import wandb_mode
from verl_node.node.node_facts import NodeFacts
from verl_node.reporting.events import Journal
from verl_node.reporting.verdict import Verdict
from verl_node.supervision import hang as supervision_hang
from verl_node.supervision import stacks
from verl_node.supervision.waiting import Deadline, until
from verl_node.training import rollout, run
from verl_node.training.checkpoint_watch import CheckpointWatch
from verl_node.training.metrics import MetricsWriter
from verl_node.training.rollout import RolloutImport


class TrainingRun:
    """One training over all nodes."""

    def __init__(
        self, facts: NodeFacts, journal: Journal, server: ControlServer, plan: run.Plan, env: Mapping[str, str]
    ) -> None:
        """``env`` is the environment of the training before the cluster has formed."""
        self.facts = facts
        self.journal = journal
        self.server = server
        self.plan = plan
        self.env = env
        self._checkpoints = CheckpointWatch(plan.training.checkpoints, plan.run_dir, journal.note)
        self._no_errors = asyncio.Event()
        self._checked = asyncio.Event()
        self._rollout = RolloutImport(facts.host, journal.note)

    def watchers(self) -> list[Coroutine[Any, Any, None]]:
        """Return the tasks that run beside the whole launch.

        They check the configuration, look for the inputs, import the rollout, watch the checkpoints, and wait for
        Slurm's notice before the time limit.
        """
        return [
            self._check_configuration(),
            self._look_for_inputs(),
            self._rollout.watch(),
            self._checkpoints.watch(),
            self._checkpoints.stop_after_notice(),
        ]

    async def _check_configuration(self) -> None:
        """Check the training's configuration while the cluster forms. Raises BadTrainingConfig."""
        training, settings = self.plan.training, self.facts.settings
        command = child.argv(settings, training.argv, self.facts.identity.verl, self.plan.configuration)
        await child.run(command, self.env, self.journal.note, self._no_errors.set)
        self._no_errors.set()
        self._checked.set()

    async def _look_for_inputs(self) -> None:
        """End the job before the cluster has formed if it cannot have its inputs. Raises InputUnavailable."""
        training, settings = self.plan.training, self.facts.settings
        await lookup.require(
            training.models,
            training.datasets,
            data_dir=settings.data_dir,
            source=settings.data_source,
            env=settings.environ,
        )

    async def wandb_environment(self) -> dict[str, str]:
        """Return the variables of Weights & Biases for all nodes."""
        return await wandb_mode.environment(
            self.plan.training, self.plan.run_dir, self.facts.settings.environ, self.journal.note
        )

    async def prepare(self) -> None:
        """Prepare data and model on the head first, then everywhere: with a shared cache the others only find them.

        On the head they are also checked against the configuration, which verl itself may be reading meanwhile. Nothing
        waits for the import of the rollout: its failure ends the training, too. Raises InputUnavailable.
        """
        await self._no_errors.wait()
        settings = self.facts.settings
        deadline = Deadline(settings.prepare_timeout_s)
        imported = rollout.arguments_of(self.plan.configuration, self.plan.module)
        self._rollout.begin(imported, self.env)
        argv = [*self.plan.prepare, "--configuration", str(self.plan.configuration)]
        await prepare_child.run(argv, settings.environ, journal=self.journal, deadline=deadline)
        self.server.broadcast(Prepare(self.plan.prepare, imported))
        if not await until(lambda: not self.server.workers.hosts_without(Prepared()), deadline=deadline):
            late = ", ".join(self.server.workers.hosts_without(Prepared()))
            raise InputUnavailable(
                f"Data and model were not ready on {late} after {deadline.timeout_s:.0f} s.",
                fix="Look at those nodes' network and disk; VERLJOB_PREPARE_TIMEOUT_S gives them longer.",
            )
        await self._checked.wait()

    async def train(self, env: dict[str, str]) -> Verdict:
        """Run the training to its end; report every step to all nodes."""
        pace = supervision_hang.Progress(self.facts.settings.hang)

        def on_step(step: int) -> None:
            pace.step(step)
            self._checkpoints.logged = step
            self.server.broadcast(Step(step))

        gpus = Watch(self.facts.gpu_usage)
        rows = self.plan.run_dir / "metrics.jsonl"
        steps = MetricsWriter(rows, self.facts.host, gpus, self.plan.training.file_log, on_step)
        self.server.on_row = steps.write_row
        hang = supervision_hang.watch(pace, self.journal.note, self._take_stacks)
        code = await run.run(self.plan, env, steps, gpus.follow(), hang)
        await self._checkpoints.check()
        return Verdict.of_training(code, host=self.facts.host)

    async def _take_stacks(self, hang: int) -> str:
        """Have every node write the stacks of its processes; return a text with their places."""
        self.server.broadcast(TakeStacks(hang))
        assert self.facts.folder is not None
        text = await stacks.write(self.facts.folder / f"stacks-{hang}.txt", self.facts.settings.environ)
        written = StacksWritten(hang)
        await until(lambda: not self.server.workers.hosts_without(written), deadline=Deadline(stacks.TOTAL_S))
        return f"{text}, and likewise on the other nodes"
