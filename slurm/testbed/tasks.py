"""Tasks `testbed.*` for the rehearsal cluster, except `up`, which needs an image."""

from __future__ import annotations

import os

from invoke import Collection, Context, task

from slurm import testbed
from slurm.jobs.tasks import after_dashes


@task(name="sbatch")
def cluster_sbatch(_: Context) -> None:
    """Submit as submitter, from a copy of this checkout: testbed.sbatch -- --nodes=2 slurm/launch.sh demo_cpu"""
    cluster = testbed.Cluster.running()
    cluster.sync_checkout()
    print(str(cluster.sbatch(after_dashes(), environment=testbed.exported_settings(os.environ))), flush=True)


@task(name="shell", help={"host": "login or a node", "user": "submitter, neighbour or root"})
def cluster_shell(_: Context, host: str = "login", user: str = "submitter") -> None:
    """Open a shell on a host of the rehearsal cluster."""
    argv = testbed.Cluster.running().shell(host, user)
    os.execvp(argv[0], argv)  # noqa: S606


@task(name="push", help={"image": "an image of this machine"})
def cluster_push(_: Context, image: str = "verl.cpu:latest") -> None:
    """Push an image to the rehearsal cluster's registry and print the reference for its nodes."""
    print(testbed.Cluster.running().push(image), flush=True)


@task(
    name="down",
    help={"caches": "also remove the cluster's images and the registry's content, which make the next start quick"},
)
def cluster_down(_: Context, caches: bool = False) -> None:
    """Remove the rehearsal cluster."""
    testbed.Cluster(testbed.MAX_NODES).down(caches=caches)


namespace = Collection(cluster_sbatch, cluster_shell, cluster_push, cluster_down)
