"""Discovers the network settings of NCCL, RCCL and Gloo on this node.

Four variables come of it, each only where nobody set it: NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME, NCCL_IB_HCA and
NCCL_IB_GID_INDEX. What they mean: NCCL's user guide, "Environment Variables"; RCCL reads the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from verl_node.network import gids, hcas, interfaces, plugins, rails

NAMES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX")


@dataclass(frozen=True)
class Choice:
    """A variable's value, empty where it stays unset, and why."""

    name: str
    value: str
    why: str


@dataclass(frozen=True)
class Fabric:
    """What this node would tell the libraries, what it left aside, and whose plugins it looked for."""

    choices: tuple[Choice, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return what to set; what the user, the profile or the platform set stays."""
        return {one.name: one.value for one in self.choices if one.value and not environ.get(one.name)}

    def lines(self, environ: Mapping[str, str]) -> list[str]:
        """Return it as people read it: each variable with its value and why, then what was left out."""
        said = [_line(choice, environ.get(choice.name, "")) for choice in self.choices]
        said += [f"# left out: {what}, {why}" for what, why in self.left_out]
        return said + [f"# {note}" for note in self.notes]


def of_this_node(address: str, environ: Mapping[str, str]) -> Fabric:
    """Return what fits the node that this process runs on."""
    libraries = environ.get("LD_LIBRARY_PATH", "")
    return find(address, addresses=interfaces.addresses(), hcas=hcas.read(), libraries=libraries)


def find(
    address: str,
    *,
    addresses: Mapping[str, str],
    hcas: hcas.Hcas,
    root: Path = Path("/"),
    libraries: str = "",
) -> Fabric:
    """Return what fits this node, whose ``address`` is the one by which its route to the head leaves.

    ``addresses`` says which interface holds which address, ``libraries`` is LD_LIBRARY_PATH.
    """
    chosen = rails.choose(hcas)
    interface = interfaces.holder(address, addresses)
    why = f"holds {address}, by which this node and the head reach each other"
    missing = f"no interface here holds {address}"
    return Fabric(
        choices=(
            Choice(NAMES[0], f"={interface}" if interface else "", why if interface else missing),
            Choice(NAMES[1], interface, why if interface else missing),
            Choice(NAMES[2], chosen.nccl(), chosen.why),
            Choice(NAMES[3], *gids.common(chosen.ports)),
        ),
        left_out=chosen.left_out,
        notes=tuple(plugins.notes(hcas, root, libraries)),
    )


def _line(choice: Choice, given: str) -> str:
    if given:
        return f"{choice.name}={given}  # stays as it was set" + (f"; found: {choice.value}" if choice.value else "")
    return f"{choice.name}={choice.value}  # {choice.why}" if choice.value else f"# {choice.name} unset: {choice.why}"
