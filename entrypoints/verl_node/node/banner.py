"""Messages of the head for people: addresses, commands to type."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from verl_node import versions
from verl_node.network.address import answers, join
from verl_node.ray_node import flags
from verl_node.settings.identity import Identity
from verl_node.settings.settings import Settings
from verl_node.supervision.waiting import Deadline, until

# In an image it lies above the packages; without a container the checkout's is beside them.
_BESIDE = Path(__file__).parents[2] / "runtime_env.yaml"
RUNTIME_ENV = _BESIDE if _BESIDE.exists() else Path("/opt/verljob/runtime_env.yaml")


def first_lines(settings: Settings, nodes: Sequence[Identity]) -> None:
    """Name what is known now that the nodes have met; by hand also what launch.sh says before its step."""
    head = nodes[0]
    dashboard = _dashboard(settings, head)
    _say(
        {
            "nodes": ", ".join(f"{node.host} {node.address} ({node.gpus} GPUs, {node.cpus} CPUs)" for node in nodes),
            "image": f"{settings.image or 'unnamed'} {settings.image_digest or '(digest unknown)'}",
            "software": f"Ray {head.ray}, Python {head.python}, verl {head.verl or 'none'} {head.verl_commit}".rstrip(),
        }
    )
    if settings.by_hand:
        port = settings.head_ports.dashboard
        tunnel = f"ssh -N -L {port}:{dashboard} {head.host}, then http://localhost:{port}"
        _say(
            {
                "run folder": str(settings.run_dir or "none"),
                "dashboard": tunnel if dashboard else "off",
                "time limit": "none",
            }
        )
    if unprotected := _unprotected(settings, head):
        _say({"warning": f"{unprotected}; the dashboard is {'on all the same' if dashboard else 'off'}"})


async def dashboard_answers(settings: Settings, head: Identity) -> None:
    """Wait until the dashboard takes jobs: nothing waits for it while the cluster forms."""
    host = dashboard_host(settings, head)
    port = settings.head_ports.dashboard
    if host and not await until(lambda: answers(host, port), deadline=Deadline(settings.ray_timeout_s)):
        _say({"warning": f"the dashboard does not answer at {join(host, port)}: jobs cannot be submitted yet"})


def _dashboard(settings: Settings, head: Identity) -> str:
    """Return host and port of the dashboard, empty where it is off."""
    host = dashboard_host(settings, head)
    return join(host, settings.head_ports.dashboard) if host else ""


def dashboard_host(settings: Settings, head: Identity) -> str:
    """Return the address at which the head's Ray shows its dashboard, empty where it is off."""
    return flags.dashboard_host(versions.parse(head.ray), settings.dashboard, node_address=head.address)


def _unprotected(settings: Settings, head: Identity) -> str:
    """Return why anybody who reaches the head can use this cluster; empty where that takes the job's token."""
    if flags.protected(versions.parse(head.ray), settings.token_file):
        return ""
    why = "there is no VERLJOB_TOKEN_FILE" if settings.token_file is None else f"Ray {head.ray} knows no tokens"
    return f"{why}, so whoever reaches the ports of these nodes can run code in this job"


def join_line(settings: Settings, own_address: str) -> None:
    """Say what to type on the other machines of a cluster by hand."""
    if settings.by_hand and settings.allocation.nodes > 1:
        target = join(own_address, settings.head_ports.control)
        count = settings.allocation.nodes - 1
        _say({"to join": f"on {count} more machine{'s' * (count > 1)}, in the same image:  node --join {target}"})


def how_to_use(settings: Settings, nodes: Sequence[Identity]) -> None:
    """Say how to work with a cluster that stays."""
    head = nodes[0]
    dashboard = _dashboard(settings, head)
    address = f"http://{dashboard}"
    gcs = join(head.address, settings.head_ports.gcs)
    training = [
        "python3",
        "-m",
        "verl.trainer.main_ppo",
        f"trainer.nnodes={len(nodes)}",
        f"trainer.n_gpus_per_node={head.gpus}",
    ]
    submit = [
        "ray",
        "job",
        "submit",
        f"--address={address}",
        f"--runtime-env={RUNTIME_ENV}",
        "--no-wait",
        "--",
        *training,
    ]
    lines = {"cluster": f"ready at {gcs}; it stays until its time ends"}
    if dashboard:
        lines["submit"] = f"{shlex.join(submit)} …"
        lines["look"] = f"ray job list --address={address}; ray status --address={gcs}"
    else:
        lines["submit"] = "jobs are submitted to the dashboard, which is off: VERLJOB_DASHBOARD=1 turns it on"
        lines["look"] = f"ray status --address={gcs}"
    _say(lines)


def _say(lines: dict[str, str]) -> None:
    for name, value in lines.items():
        print(f"{name:<11} {value}", flush=True)  # noqa: T201
