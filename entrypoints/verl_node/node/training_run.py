"""A training run on the head: check the configuration, prepare, train, watch checkpoints and hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from verl_node.configuration import child
from verl_node.control.server import Peers
from verl_node.errors import InputUnavailable
from verl_node.gpu.usage import Watch
from verl_node.inputs import prepare_child
from verl_node.node.node import Node
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

    def __init__(self, node: Node, peers: Peers, plan: run.Plan) -> None:
        self.node = node
        self.peers = peers
        self.plan = plan
        self._saves = CheckpointWatch(plan.training.checkpoints, plan.run_dir, node.journal.note)
        self._sound = asyncio.Event()
        self._inspected = asyncio.Event()
        self._rollout = RolloutImport(node.host, node.journal.note)

    def watchers(self) -> list[Coroutine[Any, Any, None]]:
        """Return what goes on beside the cluster's forming and the training itself.

        That is the look at the configuration, the import of the rollout, the watch over checkpoints, and the ear for
        Slurm's notice that the time is over.
        """
        return [self._inspect(), self._rollout.watch(), self._saves.watch(), self._saves.stop_after_notice()]

    async def _inspect(self) -> None:
        """Look at the training's configuration while the cluster forms. Raises BadTrainingConfig."""
        words, settings = self.plan.training, self.node.settings
        command = child.argv(settings, words.argv, self.node.identity.verl, self.plan.configuration)
        env = self.node.ray_environment("", words.env)
        await child.run(command, env, self.node.journal.note, self._sound.set)
        self._sound.set()
        self._inspected.set()

    async def prepare(self) -> None:
        """Prepare here first, then everywhere: with a shared cache the others only find what is there.

        Here what is prepared is also held against the configuration, which verl itself may be reading meanwhile. Nobody
        waits for the import of the rollout: what it finds ends the training, too. Raises InputUnavailable.
        """
        await self._sound.wait()
        settings = self.node.settings
        deadline = Deadline(settings.prepare_timeout_s)
        imported = rollout.arguments_of(self.plan.configuration, self.plan.module)
        self._rollout.begin(imported, self.node.ray_environment("", self.plan.training.env))
        here = [*self.plan.prepare, "--configuration", str(self.plan.configuration)]
        await prepare_child.run(here, settings.environ, journal=self.node.journal, deadline=deadline)
        self.peers.tell("prepare", argv=self.plan.prepare, rollout=imported)
        if not await until(lambda: not self.peers.workers.without("prepared"), deadline=deadline):
            late = ", ".join(self.peers.workers.without("prepared"))
            raise InputUnavailable(
                f"Data and model were not ready on {late} after {deadline.timeout_s:.0f} s.",
                fix="Look at those nodes' network and disk; VERLJOB_PREPARE_TIMEOUT_S gives them longer.",
            )
        await self._inspected.wait()

    async def train(self, env: dict[str, str]) -> Verdict:
        """Train to the end, with every step told to all nodes."""
        pace = supervision_hang.Progress(self.node.settings.hang)

        def on_step(step: int) -> None:
            pace.step(step)
            self._saves.logged = step
            self.peers.tell("step", step=step)

        gpus = Watch(self.node.gpu_use)
        rows = self.plan.run_dir / "metrics.jsonl"
        steps = MetricsWriter(rows, self.node.host, gpus, self.plan.training.file_log, on_step)
        self.peers.take_row = steps.write_row
        hang = supervision_hang.watch(pace, self.node.journal.note, self._take_stacks)
        code = await run.run(self.plan, env, steps, gpus.follow(), hang)
        await self._saves.check()
        return Verdict.of_training(code, host=self.node.host)

    async def _take_stacks(self, number: int) -> str:
        """Have every node write the stacks of its processes; return in words where they are."""
        self.peers.tell("stacks", number=number)
        folder = self.node.folder()
        assert folder is not None
        where = await stacks.write(folder / f"stacks-{number}.txt", self.node.settings.environ)
        kind = f"stacks-{number}"
        await until(lambda: not self.peers.workers.without(kind), deadline=Deadline(stacks.TOGETHER_S))
        return f"{where}, and likewise on the other nodes"
