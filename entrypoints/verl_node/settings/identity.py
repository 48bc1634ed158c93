"""Identity of a node (versions, image, address), and what must be equal on all nodes."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from typing import Any

from verl_node.errors import BadSettings, CheckFailed
from verl_node.settings import verl_checkout
from verl_node.settings.settings import Settings

# In the order in which a difference is told: an image that differs says less than what differs in it.
_SAME_SOFTWARE = {
    "ray": "Ray",
    "python": "Python",
    "verl": "verl",
    "verl_commit": "verl checkout",
    "image_digest": "image",
}


@dataclass(frozen=True)
class Identity:
    """One node as it introduces itself; an empty text means that there is none or that nobody knows.

    ``address`` is the local end of its connection to the head; the head learns its own from the other ends.
    """

    node_id: int
    host: str
    gpus: int
    cpus: int
    image_digest: str
    python: str
    ray: str
    verl: str
    verl_commit: str
    address: str = ""

    @classmethod
    def of_this_node(cls, settings: Settings, gpus: int) -> Identity:
        """Return what this node is. Raises BadSettings where VERLJOB_VERL is no checkout."""
        checkout = settings.verl_checkout
        return cls(
            node_id=settings.allocation.node_id,
            host=settings.allocation.host,
            gpus=gpus,
            cpus=settings.allocation.cpus,
            image_digest=settings.image_digest,
            python=platform.python_version(),
            ray=installed("ray"),
            verl=verl_checkout.version(checkout) if checkout else installed("verl"),
            verl_commit=verl_checkout.commit(checkout) if checkout else "",
        )

    def at(self, address: str) -> Identity:
        """Return the same node with its address known."""
        return replace(self, address=address)

    def message(self) -> dict[str, Any]:
        """Return it as the fields of a message."""
        return asdict(self)


def installed(distribution: str) -> str:
    """Return the version of an installed distribution without importing it, empty where there is none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def require_equal(nodes: Sequence[Identity]) -> None:
    """Compare every node with the first, which is the head.

    Raises BadSettings for different numbers of GPUs (verl takes one number for all nodes), CheckFailed for different
    images, Ray, Python or verl: Ray refuses some of these pairs late and in other words, and survives others badly.
    """
    head = nodes[0]
    for node in nodes[1:]:
        if node.gpus != head.gpus:
            raise BadSettings(
                f"{node.host} has {node.gpus} GPUs for the job, {head.host} has {head.gpus}.",
                fix="Ask for the same on every node: --gpus-per-node, and --exclude or --constraint for odd nodes.",
                host=node.host,
            )
        for field, what in _SAME_SOFTWARE.items():
            here, there = getattr(head, field), getattr(node, field)
            if here != there:
                raise CheckFailed(
                    f"{node.host} runs {what} {there or 'none'}, {head.host} runs {here or 'none'}.",
                    fix="Bring the same image (by digest) and the same VERLJOB_VERL to every node.",
                    host=node.host,
                    failure_class="image",
                )


def require_own_addresses(nodes: Sequence[Identity]) -> None:
    """Raise CheckFailed where two nodes have one address, as containers behind bridges of their hosts do."""
    for index, node in enumerate(nodes):
        for other in nodes[:index]:
            if node.address == other.address:
                raise CheckFailed(
                    f"{node.host} and {other.host} both have the address {node.address}.",
                    fix="Start the containers with the host's network (--network host), or set VERLJOB_NODE_ADDRESS.",
                    host=node.host,
                )
