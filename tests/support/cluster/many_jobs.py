"""Many jobs of two accounts at once on the same nodes: no port is taken twice, nobody joins another's Ray.

`launch.sh cluster` is enough for that: it forms the whole cluster and stays until it is cancelled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slurm.testbed import Cluster
from tests.support.cluster.launches import Launch, submit, wait_until
from tests.support.cluster.tenants import Tenant

USERS = ("submitter", "neighbour")
FORMED_S = 600
# Sixteen nodes of Ray share the cores of one machine: how long they take says nothing here.
PATIENT = {"VERLJOB_RAY_TIMEOUT_S": "480"}
GONE_S = 60
FLAGS = ("--gpus-per-node=1", "--cpus-per-task=1", "--mem=3G")
READY = re.compile(r"^cluster +ready at (\S+);", re.MULTILINE)
# The nodes that a Ray knows, and the ports by which it would talk to them.
MEMBERS = """
import ray, sys
for node in ray._raylet.GcsClient(address=sys.argv[1]).get_all_node_info().values():
    print("member", node.node_manager_hostname, node.node_manager_port, node.object_manager_port)
"""


@dataclass
class Tally:
    """What went wrong in how many jobs; each complaint is a sentence."""

    jobs: int = 0
    collisions: list[str] = field(default_factory=list)
    cross_joins: list[str] = field(default_factory=list)


def run(
    cluster: Cluster,
    environment: Mapping[str, str],
    *,
    jobs: int,
    rounds: int,
    say: Callable[[str], None] = lambda line: None,
) -> Tally:
    """Start ``jobs`` clusters over all nodes at once, look at them while all are up, end them; ``rounds`` times."""
    tally = Tally()
    homes = {user: cluster.sync_checkout(user=user) for user in USERS}
    for number in range(1, rounds + 1):
        users = [USERS[index % len(USERS)] for index in range(jobs)]
        launches = [_start(cluster, user, {**environment, **PATIENT, "VERLJOB_HOME": homes[user]}) for user in users]
        try:
            _look(cluster, launches, tally)
        finally:
            for launch in launches:
                launch.cancel()
            for launch in launches:
                launch.wait(GONE_S)
        say(
            f"round {number}: {tally.jobs} jobs so far, {len(tally.collisions)} collisions, "
            f"{len(tally.cross_joins)} cross-joins"
        )
    return tally


def _start(cluster: Cluster, user: str, environment: Mapping[str, str]) -> Launch:
    return submit(
        cluster,
        ["cluster"],
        flags=[f"--nodes={len(cluster.nodes)}", *FLAGS],
        environment=environment,
        folder=f"/home/{user}",
        script=f"{environment['VERLJOB_HOME']}/slurm/launch.sh",
        user=user,
    )


def _look(cluster: Cluster, launches: list[Launch], tally: Tally) -> None:
    """Wait until every cluster is whole or has failed, then look at all of them while all are up."""
    gcs: dict[int, str] = {}

    def settled() -> bool:
        for launch in launches:
            if found := READY.search(launch.output()):
                gcs[launch.id] = found[1]
        return all(launch.id in gcs or cluster.job(launch.id).ended for launch in launches)

    wait_until(settled, FORMED_S, "whole clusters", lambda: "\n".join(launch.last_words() for launch in launches))
    held: dict[tuple[str, int], int] = {}
    for launch in launches:
        tally.jobs += 1
        if launch.id not in gcs:
            tally.collisions.append(f"job {launch.id} did not form: {launch.output().splitlines()[-1]}")
            continue
        tenants = [Tenant.of(cluster, node, launch.id) for node in cluster.nodes]
        for tenant in tenants:
            _ports(tenant, launch.id, held, tally)
        _members(tenants, gcs[launch.id], launch.id, tally)


def _ports(tenant: Tenant, job: int, held: dict[tuple[str, int], int], tally: Tally) -> None:
    """Every port on which this job listens is its own, and no other job's."""
    own = tenant.ports()
    outside = sorted(listener.port for listener in tenant.listeners() if listener.port not in own)
    if outside:
        tally.collisions.append(f"job {job} listens on {outside} of {tenant.node}, outside its block")
    others = {held[tenant.node, port] for port in own if (tenant.node, port) in held}
    if others:
        tally.collisions.append(f"job {job} shares ports of {tenant.node} with {sorted(others)}")
    held.update(dict.fromkeys(((tenant.node, port) for port in own), job))


def _members(tenants: list[Tenant], gcs: str, job: int, tally: Tally) -> None:
    """Every raylet that this job's Ray knows is one of its own."""
    said = tenants[0].run(["python3", "-c", MEMBERS, gcs])
    members = re.findall(r"^member (\S+) (\d+) (\d+)$", said.stdout, re.MULTILINE)
    own = {tenant.node: tenant.ports() for tenant in tenants}
    strangers = [
        f"{host}:{port}" for host, *ports in members for port in ports if int(port) not in own.get(host, set())
    ]
    if strangers or len(members) != len(tenants):
        words = f"{members} {said.stderr[-300:]}"
        tally.cross_joins.append(
            f"job {job} has {len(members)} of {len(tenants)} members, strangers {strangers}: {words}"
        )
