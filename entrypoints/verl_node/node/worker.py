"""The life of a worker: finds the head, follows its orders, stays until the head ends the job."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict

from verl_node.control import client as control
from verl_node.control import messages
from verl_node.control.channel import OWN_SIGNAL_GRACE_S, Message
from verl_node.control.session import Session
from verl_node.errors import CheckFailed
from verl_node.gpu.usage import Watch
from verl_node.inputs import prepare_child
from verl_node.network import address
from verl_node.node.node import Node
from verl_node.ray_node import flags
from verl_node.ray_node.process import Ray
from verl_node.reporting.events import Event
from verl_node.reporting.verdict import Verdict
from verl_node.supervision import stacks
from verl_node.supervision.waiting import Deadline, unless
from verl_node.training import metrics
from verl_node.training.rollout import RolloutImport


class _JobEnded(Exception):
    """The head said how the job ended."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.sentence())
        self.verdict = verdict


async def follow(node: Node) -> Verdict:
    """Follow the head until it says how the job ended, and return that. Raises NodeError."""
    return await unless(node.watch_checks(), story=_follow(node))


async def _follow(node: Node) -> Verdict:
    ray = await Ray.prime(node.ray_environment("", {}), host=node.host)
    settings = node.settings
    head = settings.head_address or settings.head_node
    with node.journal.during("join", f"looking for the head {head}"):
        _require_elsewhere(head, node.host)
        session, _ = await control.connect(
            head,
            settings.head_ports.control,
            own_address=settings.node_address,
            token=settings.token,
            hello=node.identity.message(),
            deadline=Deadline(settings.join_timeout_s),
            silence_s=settings.silence_s,
            note=node.journal.note,
        )
    worker = _Worker(node, session, "".join(settings.allocation.hosts[:1]) or head)
    node.farewell = worker.farewell
    node.journal.hand_over_to(worker.pass_on)
    try:
        return await unless(worker.hear(), story=worker.obey(ray))
    except _JobEnded as end:
        return end.verdict


def _require_elsewhere(head: str, host: str) -> None:
    """Find at once what the deadline would only find as a head that does not answer. Raises CheckFailed."""
    own = address.leads_here(head)
    if own:
        raise CheckFailed(
            f"The head's name {head} resolves to {own} on {host}, which is {host} itself.",
            fix="Correct /etc/hosts or the DNS there, or set VERLJOB_HEAD_ADDRESS to the head's address.",
            host=host,
        )


class _Worker:
    def __init__(self, node: Node, session: Session, head: str) -> None:
        self.node = node
        self.session = session
        self.head = head
        self.orders: asyncio.Queue[Message] = asyncio.Queue()
        self.ended = False
        self.gpus = Watch(node.gpu_use)
        self.rollout = RolloutImport(node.host, node.journal.note)

    def pass_on(self, event: Event) -> None:
        """Send an event of this node to the head."""
        self.session.send("event", event=event)

    async def farewell(self, verdict: Verdict) -> None:
        """Say why this node ends, unless the head said so itself, and hang up."""
        if not self.ended:
            self.session.send("failed", verdict=asdict(verdict))
        await (self.session.close(0) if self.ended else self.session.close())

    async def hear(self) -> None:
        """Listen to the head. Raises _JobEnded when it says so, ClusterLost when it is gone."""
        while (message := await self.session.receive()) is not None:
            if message["kind"] == "end":
                self.ended = True
                raise _JobEnded(messages.verdict(message))
            self.orders.put_nowait(message)
        await asyncio.sleep(OWN_SIGNAL_GRACE_S)
        raise control.lost(self.head, self.session.end)

    async def obey(self, ray: Ray) -> Verdict:
        """Do what the head says, in the order in which it does; only an exception ends it."""
        await self.node.checking.done.wait()
        self.session.send("checks", report=asdict(self.node.checking.report), time=time.time())
        order = await self.orders.get()
        self.node.journal.phase = "join"
        env = self.node.ray_environment(order["gcs"], order["env"], self.session.local_address)
        self.node.journal.note(f"`ray start` at {self.session.local_address} joins {order['gcs']}")
        argv = flags.worker_argv(
            order["gcs"],
            node_address=self.session.local_address,
            host=self.node.host,
            ports=self.node.ports,
            share=self.node.share(),
            temp_dir=self.node.settings.ray_temp_dir,
            debug=self.node.settings.debug,
        )
        told = {**env, "VERLJOB_RAY_HEAD_TEMP_DIR": order["temp_dir"]}  # for ray_node/hook.py
        ray.start(argv, told, self.node.settings.ray_temp_dir)
        watchers = [ray.watch(), self.gpus.follow(), self.rollout.watch()]
        return await unless(*watchers, story=self._serve(ray, self.node.ray_environment("", order["env"])))

    async def _serve(self, ray: Ray, training_env: dict[str, str]) -> Verdict:
        while True:
            order = await self.orders.get()
            if order["kind"] == "formed":
                ray.formed()
                self.node.journal.note("the cluster is whole")
            elif order["kind"] == "checked":
                ray.checked()
            elif order["kind"] == "step":
                row = await metrics.gpu_row(order["step"], self.node.host, self.gpus)
                if row is not None:
                    self.session.send("row", row=row)
            elif order["kind"] == "stacks":
                await self._write_stacks(order["number"])
            elif order["kind"] == "prepare":
                self.rollout.begin(order["rollout"], training_env)
                deadline = Deadline(self.node.settings.prepare_timeout_s)
                environ = self.node.settings.environ
                await prepare_child.run(order["argv"], environ, journal=self.node.journal, deadline=deadline)
                await self.gpus.since()  # what they did until now is nothing of the first step
                self.session.send("prepared")
                self.node.journal.phase = "train"

    async def _write_stacks(self, number: int) -> None:
        folder = self.node.folder()
        if folder is not None:
            self.node.journal.note(await stacks.write(folder / f"stacks-{number}.txt", self.node.settings.environ))
        self.session.send(f"stacks-{number}")
