"""Identity of a node (versions, image, address), and the comparison of all nodes with the head."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from verl_node.errors import BadSettings, CheckFailed
from verl_node.settings.settings import Settings

# In the order in which a difference is reported: the image last, since its content says more.
_SAME_SOFTWARE = {
    "ray": "Ray",
    "python": "Python",
    "verl": "verl",
    "verl_commit": "verl checkout",
    "image_digest": "image",
}


@dataclass(frozen=True)
class Identity:
    """A node as it introduces itself; an empty text means none or unknown.

    ``address`` is the local end of its connection to the head; the head's is the other end of a worker's connection.
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
        """Return the identity of this node. Raises BadSettings if VERLJOB_VERL is not a checkout."""
        checkout = settings.verl_checkout
        return cls(
            node_id=settings.allocation.node_id,
            host=settings.allocation.host,
            gpus=gpus,
            cpus=settings.allocation.cpus,
            image_digest=settings.image_digest,
            python=platform.python_version(),
            ray=installed("ray"),
            verl=checkout_version(checkout) if checkout else installed("verl"),
            verl_commit=checkout_commit(checkout) if checkout else "",
        )

    def at(self, address: str) -> Identity:
        """Return the same identity with this address."""
        return replace(self, address=address)


def installed(distribution: str) -> str:
    """Return the version of an installed distribution without importing it, empty if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def require_equal(nodes: Sequence[Identity]) -> None:
    """Compare every node with the first, which is the head.

    Raises BadSettings for different numbers of GPUs (verl has one number for all nodes), CheckFailed for different
    images, Ray, Python or verl: Ray refuses some of these pairs late and unclearly, and misbehaves with others.
    """
    head = nodes[0]
    for node in nodes[1:]:
        if node.gpus != head.gpus:
            raise BadSettings(
                f"{node.host} has {node.gpus} GPUs for the job, {head.host} has {head.gpus}.",
                fix="Ask for the same on every node: --gpus-per-node, and --exclude or --constraint for odd nodes.",
                host=node.host,
            )
        for field, name in _SAME_SOFTWARE.items():
            expected, found = getattr(head, field), getattr(node, field)
            if found != expected:
                raise CheckFailed(
                    f"{node.host} runs {name} {found or 'none'}, {head.host} runs {expected or 'none'}.",
                    fix="Use the same image (by digest) and the same VERLJOB_VERL on every node.",
                    host=node.host,
                    failure_class="image",
                )


def require_own_addresses(nodes: Sequence[Identity]) -> None:
    """Raise CheckFailed if two nodes have the same address, as containers behind bridges of their hosts do."""
    for index, node in enumerate(nodes):
        for other in nodes[:index]:
            if node.address == other.address:
                raise CheckFailed(
                    f"{node.host} and {other.host} both have the address {node.address}.",
                    fix="Start the containers with the host's network (--network host), or set VERLJOB_NODE_ADDRESS.",
                    host=node.host,
                )


def checkout_commit(checkout: Path) -> str:
    """Return the commit of a verl checkout, read without git; empty without .git. Raises BadSettings."""
    git = checkout / ".git"
    if not git.exists():
        return ""
    try:
        if git.is_file():  # a worktree or submodule: `gitdir: PATH`
            git = checkout / git.read_text().partition(":")[2].strip()
        head = (git / "HEAD").read_text().strip()
        return _resolve_reference(git, head[len("ref:") :].strip()) if head.startswith("ref:") else head
    except OSError as error:
        raise BadSettings(
            f"The commit of VERLJOB_VERL={checkout} cannot be read: {error}.",
            fix="Mount the whole checkout with its .git.",
        ) from error


def checkout_version(checkout: Path) -> str:
    """Return the version of a verl checkout. Raises BadSettings if it is not verl."""
    file = checkout / "verl" / "version" / "version"
    try:
        return file.read_text().strip()
    except OSError as error:
        raise BadSettings(
            f"VERLJOB_VERL={checkout} is not a verl checkout: {file} cannot be read.",
            fix="Set it to the folder with verl's setup.py, by a path that exists on every node.",
        ) from error


def _resolve_reference(git: Path, reference: str) -> str:
    shared = git / "commondir"
    folders = [git, git / shared.read_text().strip()] if shared.is_file() else [git]
    for folder in folders:
        if (folder / reference).is_file():
            return (folder / reference).read_text().strip()
    for folder in folders:
        packed = folder / "packed-refs"
        for line in packed.read_text().splitlines() if packed.is_file() else []:
            value, _, name = line.partition(" ")
            if name == reference:
                return value
    raise FileNotFoundError(f"{reference} is neither a file nor in packed-refs")
