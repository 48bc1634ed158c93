"""The story of the head: it meets the nodes, forms the cluster, prepares, trains, and says how it ended."""

from __future__ import annotations

import asyncio

from verl_node import announcement, preparation, ray_flags, training
from verl_node.control.head import Peers
from verl_node.errors import InputUnavailable
from verl_node.formation import Driver
from verl_node.identity import Identity, require_equal, require_own_addresses
from verl_node.node import Node
from verl_node.ray_process import Ray
from verl_node.result import Verdict
from verl_node.steps import Steps
from verl_node.wait import Deadline, unless, until

_TASKS_TIMEOUT_S = 120.0  # for one task a node on a cluster that is there; starting a worker process takes seconds


async def lead(node: Node) -> Verdict:
    """Lead the job to its end; a cluster without a training stays until somebody ends it. Raises NodeError."""
    node.keep_events()
    node.check()
    plan = training.plan(node.settings, node.identity, node.gpus)
    allocation = node.settings.allocation
    peers = Peers(allocation.hosts, allocation.nodes, node.settings.token, node.journal.take)
    node.farewell = peers.end
    await peers.listen(node.settings.head_ports.control)
    return await unless(peers.watch(), story=_Head(node, peers, plan).lead())


class _Head:
    def __init__(self, node: Node, peers: Peers, plan: training.Plan | None) -> None:
        self.node = node
        self.settings = node.settings
        self.journal = node.journal
        self.peers = peers
        self.plan = plan
        self.join = Deadline(node.settings.join_timeout_s)

    async def lead(self) -> Verdict:
        with self.journal.during("join", f"{self.node.host} waits for {len(self.peers.roll.absent())} other nodes"):
            await self._meet()
        announcement.first_lines(self.settings, self.nodes)
        self.journal.phase = "head"
        ray = await self._start_ray()
        return await unless(ray.watch(), story=self._use(ray))

    async def _use(self, ray: Ray) -> Verdict:
        started = Deadline(self.settings.ray_timeout_s)
        with self.journal.during("head", f"`ray start --head` at {self.gcs}"):
            await ray.answering(self.nodes[0].address, self.settings.head_ports.gcs, started)
        with self.journal.during("join"):
            self.peers.tell("start-ray", gcs=self.gcs, env=self.plan.training.env if self.plan else {})
            await ray.answering(self.nodes[0].address, self.node.ports.node_manager, started)
            driver = await self._form()
            ray.formed()
        with self.journal.during("cluster"):
            await self._inspect(driver)
        if self.plan is None:
            announcement.how_to_use(self.settings, self.nodes)
            await asyncio.Event().wait()
        await self._prepare()
        with self.journal.during("train"):
            return await self._train()

    async def _meet(self) -> None:
        """Wait for every hello: nodes that do not fit together are found before Ray starts anywhere."""
        announcement.join_line(self.settings, self.node.own_address())
        workers = await self.peers.all_here(self.join)
        chosen = self.settings.head_address or self.settings.node_address
        own = self.node.own_address() if chosen else self.peers.roll.reached_address() or self.node.own_address()
        self.nodes: list[Identity] = [self.node.identity.at(own), *workers]
        require_equal(self.nodes)
        require_own_addresses(self.nodes)
        self.gcs = ray_flags.gcs_address(own, self.settings.head_ports)
        self.env = self.node.ray_environment(self.gcs, self.plan.training.env if self.plan else {})
        self.node.keep_config(self.nodes)

    async def _start_ray(self) -> Ray:
        argv = ray_flags.head_argv(
            self.node.ray_version,
            node_address=self.nodes[0].address,
            host=self.node.host,
            ports=self.node.ports,
            head=self.settings.head_ports,
            share=self.node.share(),
            temp_dir=self.settings.ray_temp_dir,
        )
        return await Ray.start(argv, self.env, host=self.node.host)

    async def _form(self) -> Driver:
        """Look at the cluster until all of it is there."""
        addresses = [node.address for node in self.nodes]
        driver = await Driver.start(gcs=self.gcs, nodes=addresses, gpus=self.node.gpus, env=self.env)
        if not await driver.whole(self.join):
            alive = driver.alive()
            absent = {
                number: f"Ray is there with {alive.get(node.address, 'none')} of {node.gpus} GPUs"
                for number, node in enumerate(self.nodes)
                if alive.get(node.address) != node.gpus
            }
            raise self.peers.roll.missing(absent, self.join)
        self.peers.tell("formed")
        return driver

    async def _inspect(self, driver: Driver) -> None:
        for seen in await driver.tasks(Deadline(_TASKS_TIMEOUT_S)):
            masks = ", ".join(f"{name}={value}" for name, value in seen["masks"].items()) or "no mask"
            self.journal.note(f"a task ran at {seen['address']} (Python {seen['python']}, {masks})")

    async def _prepare(self) -> None:
        """Prepare here first, then everywhere: with a shared cache the others only find what is there."""
        assert self.plan is not None
        deadline = Deadline(self.settings.prepare_timeout_s)
        await preparation.run(self.plan.prepare, self.settings.environ, journal=self.journal, deadline=deadline)
        self.peers.tell("prepare", argv=self.plan.prepare)
        if not await until(lambda: not self.peers.roll.without("prepared"), deadline=deadline):
            late = ", ".join(self.peers.roll.without("prepared"))
            raise InputUnavailable(
                f"Data and model were not ready on {late} after {deadline.timeout_s:.0f} s.",
                fix="Look at those nodes' network and disk; VERLJOB_PREPARE_TIMEOUT_S gives them longer.",
            )

    async def _train(self) -> Verdict:
        assert self.plan is not None
        for note in self.plan.training.notes:
            self.journal.note(note)
        rows = self.plan.run_dir / "metrics.jsonl"
        file_log = self.plan.training.file_log
        steps = Steps(rows, self.node.host, file_log, lambda step: self.peers.tell("step", step=step))
        self.peers.take_row = steps.take
        code = await training.run(self.plan, self.env, steps)
        return Verdict.of_training(code, host=self.node.host)
