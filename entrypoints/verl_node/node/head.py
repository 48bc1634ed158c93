"""The life of the head: meets the nodes, forms the cluster, prepares, trains, ends."""

from __future__ import annotations

import asyncio

from verl_node.control.server import Peers
from verl_node.gpu import visible_devices
from verl_node.node import banner
from verl_node.node.check_report import ClusterCheck
from verl_node.node.node import Node
from verl_node.node.training_run import TrainingRun
from verl_node.ray_node import flags
from verl_node.ray_node.driver import Driver
from verl_node.ray_node.process import Ray, require_free
from verl_node.reporting.node_dirs import NodeDirs
from verl_node.reporting.verdict import Verdict
from verl_node.settings.identity import Identity, require_equal, require_own_addresses
from verl_node.supervision.waiting import Deadline, unless
from verl_node.training import run


async def lead(node: Node) -> Verdict:
    """Lead the job to its end; a cluster without a training stays until somebody ends it. Raises NodeError."""
    node.keep_events()
    plan = run.plan(node.settings, node.identity, node.gpus)
    for note in plan.training.notes if plan else ():
        node.journal.note(note)
    allocation = node.settings.allocation
    peers = Peers(allocation.hosts, allocation.nodes, node.settings.token, node.journal.take, node.settings.silence_s)
    node.farewell = peers.end
    await peers.listen(node.settings.head_ports.control)
    story = _Head(node, peers, plan)
    watchers = [node.watch_checks(), peers.watch(), *(story.training_run.watchers() if story.training_run else ())]
    return await unless(*watchers, story=story.lead())


class _Head:
    def __init__(self, node: Node, peers: Peers, plan: run.Plan | None) -> None:
        self.node = node
        self.settings = node.settings
        self.journal = node.journal
        self.peers = peers
        self.training_env = plan.training.env if plan else {}
        self.training_run = TrainingRun(node, peers, plan) if plan else None
        self.join = Deadline(node.settings.join_timeout_s)
        self.examination = ClusterCheck(node, peers, plan)

    async def lead(self) -> Verdict:
        ray = await Ray.prime(self.node.ray_environment("", self.training_env), host=self.node.host)
        with self.journal.during("join", f"{self.node.host} waits for {len(self.peers.workers.absent())} other nodes"):
            await self._meet()
        banner.first_lines(self.settings, self.nodes)
        self.journal.phase = "head"
        require_free(self.nodes[0].address, self.settings.head_ports.gcs, self.node.host)
        self._start(ray)
        return await unless(ray.watch(), story=self._use(ray))

    async def _use(self, ray: Ray) -> Verdict:
        started = Deadline(self.settings.ray_timeout_s)
        driver = await Driver.prime(self.env)
        with self.journal.during("head", f"`ray start --head` at {self.gcs}"):
            await ray.answering(self.nodes[0].address, self.settings.head_ports.gcs, started)
        with self.journal.during("join"):
            self.peers.tell("start-ray", gcs=self.gcs, temp_dir=str(self.settings.ray_temp_dir), env=self.training_env)
            await ray.answering(self.nodes[0].address, self.node.ports.node_manager, started)
            await self._form(driver)
            ray.formed()
        with self.journal.during("cluster"):
            await self._inspect(driver)
        ray.checked()
        self.peers.tell("checked")
        if self.training_run is None:
            return await self._stay()
        await self.training_run.prepare()
        if self.settings.doctor == "quick":
            return self.examination.passed()
        with self.journal.during("train"):
            return await self.training_run.train(self.env)

    async def _stay(self) -> Verdict:
        """Without a training a visit is over now, and a cluster is there until somebody ends it."""
        if self.settings.doctor:
            return self.examination.passed()
        await banner.dashboard_answers(self.settings, self.nodes[0])
        banner.how_to_use(self.settings, self.nodes)
        never: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        return await never

    async def _meet(self) -> None:
        """Wait for every hello: nodes that do not fit together are found before Ray starts anywhere."""
        banner.join_line(self.settings, self.settings.own_address())
        traces = NodeDirs(self.settings.run_dir, self.settings.allocation.hosts)
        workers = await self.peers.all_here(self.join, traces, Deadline(self.settings.pull_timeout_s))
        if self.settings.doctor:
            await self.examination.judge()
        reached = "" if self.settings.given_address else self.peers.workers.reached_address()
        own = reached or self.settings.own_address()
        self.nodes: list[Identity] = [self.node.identity.at(own), *workers]
        require_equal(self.nodes)
        require_own_addresses(self.nodes)
        await self.node.checking.done.wait()
        self.gcs = flags.gcs_address(own, self.settings.head_ports)
        self.env = self.node.ray_environment(self.gcs, self.training_env, own)
        self.node.keep_config(self.nodes)

    def _start(self, ray: Ray) -> None:
        argv = flags.head_argv(
            self.node.ray_version,
            node_address=self.nodes[0].address,
            dashboard=banner.dashboard_host(self.settings, self.nodes[0]),
            host=self.node.host,
            ports=self.node.ports,
            head=self.settings.head_ports,
            share=self.node.share(),
            temp_dir=self.settings.ray_temp_dir,
            debug=self.settings.debug,
        )
        ray.start(argv, self.env, self.settings.ray_temp_dir)

    async def _form(self, driver: Driver) -> None:
        """Look at the cluster until all of it is there."""
        driver.look(gcs=self.gcs, nodes=[node.address for node in self.nodes], gpus=self.node.gpus)
        if not await driver.whole(self.join):
            alive = driver.alive()
            absent = {
                number: f"Ray is there with {alive.get(node.address, 'none')} of {node.gpus} GPUs"
                for number, node in enumerate(self.nodes)
                if alive.get(node.address) != node.gpus
            }
            raise self.peers.workers.missing(absent, self.join)
        self.peers.tell("formed")

    async def _inspect(self, driver: Driver) -> None:
        if not self.settings.doctor:
            await self.examination.judge()
        hosts = {node.address: node.host for node in self.nodes}
        for seen in await driver.tasks(Deadline(self.settings.ray_timeout_s)):
            told = ", ".join(f"{name}={value}" for name, value in seen["masks"].items()) or "no mask"
            self.journal.note(f"an actor ran at {seen['address']} (Python {seen['python']}, {told})")
            visible_devices.require_one_mask(
                seen["masks"],
                platform=self.settings.platform,
                gpus=self.node.gpus,
                ray=self.node.ray_version,
                host=hosts.get(seen["address"], seen["address"]),
            )
