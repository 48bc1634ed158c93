"""The head: waits for the workers, forms the Ray cluster, prepares, trains, ends the job."""

from __future__ import annotations

import asyncio
import json

from verl_node.checks.background import NodeChecks
from verl_node.control.messages import Checked, Formed, StartRay
from verl_node.control.server import ControlServer
from verl_node.gpu import visible_devices
from verl_node.network.address import join
from verl_node.node import banner, cluster_check
from verl_node.node.node_facts import NodeFacts
from verl_node.node.shutdown import Shutdown
from verl_node.node.training_run import TrainingRun
from verl_node.ray_node import environment, flags
from verl_node.ray_node.driver import Driver
from verl_node.ray_node.process import Ray, require_free
from verl_node.reporting.events import Journal, to_file
from verl_node.reporting.node_dirs import NodeDirs
from verl_node.reporting.verdict import Verdict, write_by_rename
from verl_node.settings.identity import Identity, require_equal, require_own_addresses
from verl_node.supervision.waiting import Deadline, run_watched
from verl_node.training import run


async def lead(facts: NodeFacts, journal: Journal, checks: NodeChecks, shutdown: Shutdown) -> Verdict:
    """Run the job; a cluster without a training runs until it is ended from outside. Raises NodeError."""
    settings = facts.settings
    if settings.run_dir is not None:
        journal.set_sink(to_file(settings.run_dir / "events.jsonl"))
    plan = run.plan(settings, facts.identity, facts.gpus)
    for note in plan.training.notes if plan else ():
        journal.note(note)
    allocation = settings.allocation
    server = ControlServer(allocation.hosts, allocation.nodes, settings.token, journal.add, settings.silence_s)
    shutdown.notify_peers = server.end_job
    await server.listen(settings.head_ports.control)
    head = _Head(facts, journal, checks, server, plan)
    training = head.training.watchers() if head.training else ()
    return await run_watched(head.lead(), checks.watch(shutdown.can_notify), server.watch(), *training)


class _Head:
    def __init__(
        self, facts: NodeFacts, journal: Journal, checks: NodeChecks, server: ControlServer, plan: run.Plan | None
    ) -> None:
        self.facts = facts
        self.settings = facts.settings
        self.journal = journal
        self.checks = checks
        self.server = server
        self.training_env = plan.training.env if plan else {}
        self.env = environment.build(
            self.settings, ports=facts.ports, gpus=facts.gpus, ray=facts.ray, training=self.training_env
        )
        self.training = TrainingRun(facts, journal, server, plan, self.env) if plan else None
        self.join_deadline = Deadline(self.settings.join_timeout_s)
        self.plan = plan

    async def lead(self) -> Verdict:
        ray = await Ray.prime(self.env, host=self.facts.host)
        others = len(self.server.workers.missing())
        with self.journal.during("join", f"{self.facts.host} waits for {others} other nodes"):
            await self._meet()
        banner.print_cluster(self.settings, self.nodes)
        self.journal.phase = "head"
        require_free(self.nodes[0].address, self.settings.head_ports.gcs, self.facts.host)
        self._start(ray)
        return await run_watched(self._use(ray), ray.watch())

    async def _use(self, ray: Ray) -> Verdict:
        started = Deadline(self.settings.ray_timeout_s)
        driver = await Driver.prime(self.env)
        with self.journal.during("head", f"`ray start --head` at {self.gcs}"):
            await ray.answering(self.nodes[0].address, self.settings.head_ports.gcs, started)
        with self.journal.during("join"):
            self.server.broadcast(StartRay(self.gcs, str(self.settings.ray_temp_dir), self.training_env))
            await ray.answering(self.nodes[0].address, self.facts.ports.node_manager, started)
            await self._form(driver)
            ray.formed()
        with self.journal.during("cluster"):
            await self._check(driver)
        ray.checked()
        self.server.broadcast(Checked())
        if self.training is None:
            return await self._stay()
        await self.training.prepare()
        if self.settings.doctor == "quick":
            return self.checked
        with self.journal.during("train"):
            return await self.training.train(self.env)

    async def _stay(self) -> Verdict:
        """Return the verdict of a health check run; a cluster without a training runs until it is cancelled."""
        if self.settings.doctor:
            return self.checked
        await banner.wait_for_dashboard(self.settings, self.nodes[0])
        banner.print_usage(self.settings, self.nodes)
        never: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        return await never

    async def _meet(self) -> None:
        """Wait for all workers and compare the nodes, before Ray starts on any of them."""
        banner.print_join_command(self.settings, self.settings.own_address())
        node_dirs = NodeDirs(self.settings.run_dir, self.settings.allocation.hosts)
        images = Deadline(self.settings.pull_timeout_s)
        workers = await self.server.wait_for_workers(self.join_deadline, node_dirs, images)
        if self.settings.doctor:
            await self._evaluate_checks()
        reached = "" if self.settings.given_address else self.server.workers.head_address()
        own = reached or self.settings.own_address()
        self.nodes: list[Identity] = [self.facts.identity.at(own), *workers]
        require_equal(self.nodes)
        require_own_addresses(self.nodes)
        await self.checks.done.wait()
        self.gcs = join(own, self.settings.head_ports.gcs)
        if self.training:
            of_wandb = await self.training.wandb_environment()
            self.training_env, self.env = {**self.training_env, **of_wandb}, {**self.env, **of_wandb}
        self.env = environment.complete(
            self.env,
            gcs=self.gcs,
            own_address=own,
            plugin_variables=self.settings.plugin_variables,
            doctor=self.settings.doctor,
            note=self.journal.note,
        )
        self._save_config()

    def _save_config(self) -> None:
        """Write config.json: what was launched, and on which nodes."""
        settings, identity = self.settings, self.facts.identity
        if settings.run_dir is None:
            return
        config = {
            "recipe": settings.recipe,
            "overrides": list(settings.overrides),
            "platform": settings.platform,
            "image": settings.image,
            "image_digest": settings.image_digest,
            "verl": identity.verl,
            "verl_commit": identity.verl_commit,
            "attempt": settings.attempt,
            "nodes": [vars(node) for node in self.nodes],
        }
        write_by_rename(settings.run_dir / "config.json", json.dumps(config, indent=2) + "\n")

    def _start(self, ray: Ray) -> None:
        argv = flags.head_argv(
            self.facts.ray,
            node_address=self.nodes[0].address,
            dashboard=banner.dashboard_host(self.settings, self.nodes[0]),
            host=self.facts.host,
            ports=self.facts.ports,
            head=self.settings.head_ports,
            share=self.facts.ray_share(),
            temp_dir=self.settings.ray_temp_dir,
            debug=self.settings.debug,
        )
        ray.start(argv, self.env, self.settings.ray_temp_dir, delay_helpers=self.facts.delay_ray_helpers)

    async def _form(self, driver: Driver) -> None:
        """Wait until every node has joined Ray with all of its GPUs. Raises ClusterNotFormed."""
        driver.watch_cluster(gcs=self.gcs, nodes=[node.address for node in self.nodes], gpus=self.facts.gpus)
        if not await driver.complete(self.join_deadline):
            alive = driver.alive()
            problems = {
                number: f"Ray has {alive.get(node.address, 'none')} of {node.gpus} GPUs"
                for number, node in enumerate(self.nodes)
                if alive.get(node.address) != node.gpus
            }
            raise self.server.workers.not_formed(problems, self.join_deadline)
        self.server.broadcast(Formed())

    async def _evaluate_checks(self) -> None:
        self.checked = await cluster_check.evaluate(self.settings, self.journal, self.checks, self.server, self.plan)

    async def _check(self, driver: Driver) -> None:
        """Run the cluster checks, and an actor on each node. Raises CheckFailed."""
        if not self.settings.doctor:
            await self._evaluate_checks()
        hosts = {node.address: node.host for node in self.nodes}
        for node in await driver.actors(Deadline(self.settings.ray_timeout_s)):
            masks = ", ".join(f"{name}={value}" for name, value in node["masks"].items()) or "no mask"
            self.journal.note(f"an actor ran at {node['address']} (Python {node['python']}, {masks})")
            visible_devices.require_one_mask(
                node["masks"],
                platform=self.settings.platform,
                gpus=self.facts.gpus,
                ray=self.facts.ray,
                host=hosts.get(node["address"], node["address"]),
            )
