"""A worker: connects to the head, follows its orders, runs until the head ends the job."""

from __future__ import annotations

import asyncio
import time

from verl_node.checks.background import NodeChecks
from verl_node.control import client, messages
from verl_node.control.channel import OWN_SIGNAL_GRACE_S
from verl_node.control.messages import Message, Unreadable
from verl_node.control.session import Session
from verl_node.errors import CheckFailed
from verl_node.gpu.usage import Watch
from verl_node.inputs import prepare_child
from verl_node.network import address
from verl_node.node.node_facts import NodeFacts
from verl_node.node.shutdown import Shutdown
from verl_node.ray_node import environment, flags
from verl_node.ray_node.process import Ray
from verl_node.reporting.events import Event, Journal
from verl_node.reporting.verdict import Verdict
from verl_node.supervision import stacks
from verl_node.supervision.waiting import Deadline, run_watched
from verl_node.training import metrics
from verl_node.training.rollout import RolloutImport


class _Ended(Exception):
    """The head reported how the job ended."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.sentence())
        self.verdict = verdict


async def follow(facts: NodeFacts, journal: Journal, checks: NodeChecks, shutdown: Shutdown) -> Verdict:
    """Follow the head until it ends the job; return the job's verdict. Raises NodeError."""
    worker = _Worker(facts, journal, checks)
    return await run_watched(worker.follow(shutdown), checks.watch(shutdown.can_notify))


class _Worker:
    def __init__(self, facts: NodeFacts, journal: Journal, checks: NodeChecks) -> None:
        self.facts = facts
        self.settings = facts.settings
        self.journal = journal
        self.checks = checks
        self.env = environment.build(self.settings, ports=facts.ports, gpus=facts.gpus, ray=facts.ray, training={})
        self.head = self.settings.head_address or self.settings.head_node
        self.orders: asyncio.Queue[Message] = asyncio.Queue()
        self.ended = False
        self.gpus = Watch(facts.gpu_usage)
        self.rollout = RolloutImport(facts.host, journal.note)

    async def follow(self, shutdown: Shutdown) -> Verdict:
        ray = await Ray.prime(self.env, host=self.facts.host)
        with self.journal.during("join", f"looking for the head {self.head}"):
            self._require_other_host()
            self.session: Session = await client.connect(
                self.head,
                self.settings.head_ports.control,
                own_address=self.settings.node_address,
                token=self.settings.token,
                identity=self.facts.identity,
                deadline=Deadline(self.settings.join_timeout_s),
                silence_s=self.settings.silence_s,
                note=self.journal.note,
            )
        shutdown.notify_peers = self._notify_head
        self.journal.set_sink(self._send_event)
        try:
            return await run_watched(self._obey(ray), self._receive())
        except _Ended as end:
            return end.verdict

    def _require_other_host(self) -> None:
        """Raise CheckFailed if the head's name resolves to this node, where no head would ever answer."""
        own, host = address.leads_here(self.head), self.facts.host
        if own:
            raise CheckFailed(
                f"The head's name {self.head} resolves to {own} on {host}, which is {host} itself.",
                fix="Correct /etc/hosts or the DNS there, or set VERLJOB_HEAD_ADDRESS to the head's address.",
                host=host,
            )

    def _send_event(self, event: Event) -> None:
        self.session.send(messages.WorkerEvent(event))

    async def _notify_head(self, verdict: Verdict) -> None:
        """Report why this node ends, unless the head ended the job, and close the connection."""
        if self.ended:
            await self.session.close(0)
        else:
            self.session.send(messages.Failed(verdict))
            await self.session.close()

    async def _receive(self) -> None:
        """Queue the head's orders. Raises _Ended at the end of the job, ClusterLost when the head is lost."""
        while (message := await self.session.receive()) is not None:
            if isinstance(message, messages.JobEnded):
                self.ended = True
                raise _Ended(message.verdict)
            self.orders.put_nowait(message)
        await asyncio.sleep(OWN_SIGNAL_GRACE_S)
        raise client.lost("".join(self.settings.allocation.hosts[:1]) or self.head, self.session.end_reason)

    async def _obey(self, ray: Ray) -> Verdict:
        """Follow the head's orders one after the other; ends only by an exception."""
        await self.checks.done.wait()
        self.session.send(messages.ChecksDone(self.checks.report, time.time()))
        order = await self.orders.get()
        if not isinstance(order, messages.StartRay):
            raise Unreadable(f"{type(order).__name__} came before StartRay")
        own = self.session.local_address
        self.journal.phase = "join"
        training_env = {**self.env, **order.env}
        self.env = environment.complete(
            training_env,
            gcs=order.gcs,
            own_address=own,
            plugin_variables=self.settings.plugin_variables,
            doctor=self.settings.doctor,
            note=self.journal.note,
        )
        self.journal.note(f"`ray start` at {own} joins {order.gcs}")
        argv = flags.worker_argv(
            order.gcs,
            node_address=own,
            host=self.facts.host,
            ports=self.facts.ports,
            share=self.facts.ray_share(),
            temp_dir=self.settings.ray_temp_dir,
            debug=self.settings.debug,
        )
        env = {**self.env, "VERLJOB_RAY_HEAD_TEMP_DIR": order.temp_dir}  # for fast_start.py
        ray.start(argv, env, self.settings.ray_temp_dir, delay_helpers=self.facts.delay_ray_helpers)
        watchers = [ray.watch(), self.gpus.follow(), self.rollout.watch()]
        return await run_watched(self._serve(ray, training_env), *watchers)

    async def _serve(self, ray: Ray, training_env: dict[str, str]) -> Verdict:
        while True:
            order = await self.orders.get()
            if isinstance(order, messages.Formed):
                ray.formed()
                self.journal.note("the cluster has formed")
            elif isinstance(order, messages.Checked):
                ray.checked()
            elif isinstance(order, messages.Step):
                row = await metrics.gpu_row(order.step, self.facts.host, self.gpus)
                if row is not None:
                    self.session.send(messages.MetricsRow(row))
            elif isinstance(order, messages.TakeStacks):
                await self._write_stacks(order.hang)
            elif isinstance(order, messages.Prepare):
                self.rollout.begin(order.rollout, training_env)
                deadline = Deadline(self.settings.prepare_timeout_s)
                await prepare_child.run(order.argv, self.settings.environ, journal=self.journal, deadline=deadline)
                await self.gpus.since()  # their use until now is not part of the first step
                self.session.send(messages.Prepared())
                self.journal.phase = "train"

    async def _write_stacks(self, hang: int) -> None:
        if self.facts.folder is not None:
            self.journal.note(await stacks.write(self.facts.folder / f"stacks-{hang}.txt", self.settings.environ))
        self.session.send(messages.StacksWritten(hang))
