"""Output of the head for people: addresses, and the commands to type."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from verl_node import versions
from verl_node.network.address import answers, join
from verl_node.ray_node import flags
from verl_node.settings.identity import Identity
from verl_node.settings.settings import Settings
from verl_node.supervision.waiting import Deadline, until

# In a checkout it is beside the package, in an image above the package's folder.
_BESIDE = Path(__file__).parents[2] / "runtime_env.yaml"
RUNTIME_ENV = _BESIDE if _BESIDE.exists() else Path("/opt/verljob/runtime_env.yaml")
IMAGE_FACTS = RUNTIME_ENV.with_name("image.json")  # docs/flow.md, "In the image"; an environment of `bare` has none


def print_cluster(settings: Settings, nodes: Sequence[Identity]) -> None:
    """Print the nodes that have met; without Slurm also the lines that launch.sh prints before its step."""
    head = nodes[0]
    dashboard = _dashboard(settings, head)
    lines = {
        "nodes": ", ".join(f"{node.host} {node.address} ({node.gpus} GPUs, {node.cpus} CPUs)" for node in nodes),
        "image": f"{settings.image or 'unnamed'} {settings.image_digest or '(digest unknown)'}",
        "software": f"Ray {head.ray}, Python {head.python}, verl {head.verl or 'none'} {head.verl_commit}".rstrip(),
    }
    if settings.standalone:
        port = settings.head_ports.dashboard
        tunnel = f"ssh -N -L {port}:{dashboard} {head.host}, then http://localhost:{port}"
        lines["run folder"] = str(settings.run_dir or "none")
        lines["dashboard"] = tunnel if dashboard else "off"
        lines["time limit"] = "none"
    if reason := _unprotected(settings, head):
        lines["warning"] = f"{reason}; the dashboard is {'on nevertheless' if dashboard else 'off'}"
    _print(lines)
    if reason := _untried():
        _print({"warning": f"no training is known with this image's base and verl: {reason}"})


async def wait_for_dashboard(settings: Settings, head: Identity) -> None:
    """Wait until the dashboard accepts jobs; it starts after the cluster has formed."""
    host, port = dashboard_host(settings, head), settings.head_ports.dashboard
    if host and not await until(lambda: answers(host, port), deadline=Deadline(settings.ray_timeout_s)):
        _print({"warning": f"the dashboard does not answer at {join(host, port)}: jobs cannot be submitted yet"})


def dashboard_host(settings: Settings, head: Identity) -> str:
    """Return the address of the dashboard of the head's Ray, empty if it is off."""
    return flags.dashboard_host(versions.parse(head.ray), settings.dashboard, node_address=head.address)


def print_join_command(settings: Settings, own_address: str) -> None:
    """Print the command for the other machines of a cluster without Slurm."""
    if settings.standalone and settings.allocation.nodes > 1:
        target = join(own_address, settings.head_ports.control)
        count = settings.allocation.nodes - 1
        _print({"to join": f"on {count} more machine{'s' * (count > 1)}, in the same image:  node --join {target}"})


def print_usage(settings: Settings, nodes: Sequence[Identity]) -> None:
    """Print how to use a cluster without a training."""
    head = nodes[0]
    dashboard = _dashboard(settings, head)
    address, gcs = f"http://{dashboard}", join(head.address, settings.head_ports.gcs)
    lines = {"cluster": f"ready at {gcs}; it runs until its time limit"}
    if dashboard:
        submit = ["ray", "job", "submit", f"--address={address}", f"--runtime-env={RUNTIME_ENV}", "--no-wait", "--"]
        submit += ["python3", "-m", "verl.trainer.main_ppo", f"trainer.nnodes={len(nodes)}"]
        submit += [f"trainer.n_gpus_per_node={head.gpus}"]
        lines["submit"] = f"{shlex.join(submit)} …"
        lines["status"] = f"ray job list --address={address}; ray status --address={gcs}"
    else:
        lines["submit"] = "jobs are submitted to the dashboard, which is off: VERLJOB_DASHBOARD=1 turns it on"
        lines["status"] = f"ray status --address={gcs}"
    _print(lines)


def _untried() -> str:
    """Return why the image should work, if no training with it is known; empty if one is, or outside of an image."""
    if not IMAGE_FACTS.is_file():
        return ""
    state = json.loads(IMAGE_FACTS.read_text(encoding="utf-8")).get("state", {})
    return str(state["what"]) if state.get("kind") == "reasoned" else ""


def _dashboard(settings: Settings, head: Identity) -> str:
    """Return host and port of the dashboard, empty if it is off."""
    host = dashboard_host(settings, head)
    return join(host, settings.head_ports.dashboard) if host else ""


def _unprotected(settings: Settings, head: Identity) -> str:
    """Return why the cluster can be used without the job's token; empty if it cannot."""
    if flags.protected(versions.parse(head.ray), settings.token_file):
        return ""
    why = "VERLJOB_TOKEN_FILE is not set" if settings.token_file is None else f"Ray {head.ray} has no tokens"
    return f"{why}, so every account that reaches the ports of these nodes can run code in this job"


def _print(lines: dict[str, str]) -> None:
    for name, value in lines.items():
        print(f"{name:<11} {value}", flush=True)  # noqa: T201
