"""Many jobs of two accounts at once on the same nodes: counts port collisions and nodes that joined another job's Ray.

The jobs run `launch.sh cluster`, which forms a Ray cluster and stays until it is cancelled.
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
# Sixteen nodes of Ray share the cores of one machine, so their start may take long.
LONG_START = {"VERLJOB_RAY_TIMEOUT_S": "480"}
GONE_S = 60
FLAGS = ("--gpus-per-node=1", "--cpus-per-task=1", "--mem=3G")
READY = re.compile(r"^cluster +ready at (\S+);", re.MULTILINE)
# Prints the nodes of a Ray cluster, with the ports of their raylets and object managers.
MEMBERS = """
import ray, sys
for node in ray._raylet.GcsClient(address=sys.argv[1]).get_all_node_info().values():
    print("member", node.node_manager_hostname, node.node_manager_port, node.object_manager_port)
"""


@dataclass
class Tally:
    """The number of jobs, and a sentence for each problem."""

    jobs: int = 0
    collisions: list[str] = field(default_factory=list)
    cross_joins: list[str] = field(default_factory=list)


def run(
    cluster: Cluster,
    environment: Mapping[str, str],
    *,
    jobs: int,
    rounds: int,
    log_line: Callable[[str], None] = lambda line: None,
) -> Tally:
    """Start ``jobs`` clusters over all nodes at once, check them while all are up, cancel them; ``rounds`` times."""
    tally = Tally()
    homes = {user: cluster.sync_checkout(user=user) for user in USERS}
    for number in range(1, rounds + 1):
        users = [USERS[index % len(USERS)] for index in range(jobs)]
        launches = [_start(cluster, user, {**environment, **LONG_START, "VERLJOB_HOME": homes[user]}) for user in users]
        try:
            _check(cluster, launches, tally)
        finally:
            for launch in launches:
                launch.cancel()
            for launch in launches:
                launch.wait(GONE_S)
        log_line(
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


def _check(cluster: Cluster, launches: list[Launch], tally: Tally) -> None:
    """Wait until every cluster is complete or has failed, then check all of them while all are up."""
    gcs: dict[int, str] = {}

    def settled() -> bool:
        for launch in launches:
            if match := READY.search(launch.output()):
                gcs[launch.id] = match[1]
        return all(launch.id in gcs or cluster.job(launch.id).ended for launch in launches)

    wait_until(settled, FORMED_S, "complete clusters", lambda: "\n".join(launch.end_of_output() for launch in launches))
    owners: dict[tuple[str, int], int] = {}
    for launch in launches:
        tally.jobs += 1
        if launch.id not in gcs:
            tally.collisions.append(f"job {launch.id} did not form: {launch.output().splitlines()[-1]}")
            continue
        tenants = [Tenant.find(cluster, node, launch.id) for node in cluster.nodes]
        for tenant in tenants:
            _check_ports(tenant, launch.id, owners, tally)
        _check_members(tenants, gcs[launch.id], launch.id, tally)


def _check_ports(tenant: Tenant, job: int, owners: dict[tuple[str, int], int], tally: Tally) -> None:
    """Record every port on which this job listens outside its block, or that another job owns."""
    own = tenant.ports()
    outside = sorted(listener.port for listener in tenant.listeners() if listener.port not in own)
    if outside:
        tally.collisions.append(f"job {job} listens on {outside} of {tenant.node}, outside its block")
    others = {owners[tenant.node, port] for port in own if (tenant.node, port) in owners}
    if others:
        tally.collisions.append(f"job {job} shares ports of {tenant.node} with {sorted(others)}")
    owners.update(dict.fromkeys(((tenant.node, port) for port in own), job))


def _check_members(tenants: list[Tenant], gcs: str, job: int, tally: Tally) -> None:
    """Record a cluster whose raylets are not exactly those of this job."""
    listed = tenants[0].run(["python3", "-c", MEMBERS, gcs])
    members = re.findall(r"^member (\S+) (\d+) (\d+)$", listed.stdout, re.MULTILINE)
    own = {tenant.node: tenant.ports() for tenant in tenants}
    foreign = [f"{host}:{port}" for host, *ports in members for port in ports if int(port) not in own.get(host, set())]
    if foreign or len(members) != len(tenants):
        details = f"{members} {listed.stderr[-300:]}"
        tally.cross_joins.append(
            f"job {job} has {len(members)} of {len(tenants)} members, foreign ones {foreign}: {details}"
        )
