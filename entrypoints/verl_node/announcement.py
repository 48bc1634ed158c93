"""What the head says to people: where things are, and what to type."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from verl_node.address import join
from verl_node.identity import Identity
from verl_node.settings import Settings

RUNTIME_ENV = "/opt/verljob/runtime_env.yaml"


def first_lines(settings: Settings, nodes: Sequence[Identity]) -> None:
    """Name what is known now that the nodes have met; by hand also what launch.sh says before its step."""
    head = nodes[0]
    _say(
        {
            "nodes": ", ".join(f"{node.host} {node.address} ({node.gpus} GPUs, {node.cpus} CPUs)" for node in nodes),
            "image": f"{settings.image or 'unnamed'} {settings.image_digest or '(digest unknown)'}",
            "software": f"Ray {head.ray}, Python {head.python}, verl {head.verl or 'none'} {head.verl_commit}".rstrip(),
        }
    )
    if settings.by_hand:
        dashboard = settings.head_ports.dashboard
        tunnel = f"ssh -N -L {dashboard}:{join(head.address, dashboard)} {head.host}"
        _say(
            {
                "run folder": str(settings.run_dir or "none"),
                "dashboard": f"{tunnel}, then http://localhost:{dashboard}",
                "time limit": "none",
            }
        )


def join_line(settings: Settings, own_address: str) -> None:
    """Say what to type on the other machines of a cluster by hand."""
    if settings.by_hand and settings.allocation.nodes > 1:
        target = join(own_address, settings.head_ports.control)
        count = settings.allocation.nodes - 1
        _say({"to join": f"on {count} more machine{'s' * (count > 1)}, in the same image:  node --join {target}"})


def how_to_use(settings: Settings, nodes: Sequence[Identity]) -> None:
    """Say how to work with a cluster that stays."""
    head = nodes[0]
    address = f"http://{join(head.address, settings.head_ports.dashboard)}"
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
    _say(
        {
            "cluster": f"ready at {gcs}; it stays until its time ends",
            "submit": f"{shlex.join(submit)} …",
            "look": f"ray job list --address={address}; ray status --address={gcs}",
        }
    )


def _say(lines: dict[str, str]) -> None:
    for name, value in lines.items():
        print(f"{name:<11} {value}", flush=True)  # noqa: T201
