"""Discovers the network settings of NCCL, RCCL and Gloo on this node.

It proposes NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME, NCCL_IB_HCA and NCCL_IB_GID_INDEX, each only if it is not set yet.
Their meaning: NCCL's user guide, "Environment Variables"; RCCL reads the same names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from verl_node.network import address, hcas, rails

NAMES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX")
# Install folders of AWS's and HPE's installers, and of images made with them; NCCL itself uses the linker's path.
_PLUGIN_FOLDERS = (
    "opt/amazon/ofi-nccl/lib",
    "opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "opt/amazon/ofi-nccl/lib64",
    "opt/aws-ofi-nccl/lib",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib64",
    "usr/local/lib",
)
_PLUGINS = ("libnccl-net.so", "libnccl-net-ofi.so", "librccl-net.so", "librccl-net-ofi.so")


@dataclass(frozen=True)
class Choice:
    """A variable's value, empty if it stays unset, and the reason."""

    name: str
    value: str
    why: str


@dataclass(frozen=True)
class Fabric:
    """The settings for this node, the ports that were left out, and notes about plugins."""

    choices: tuple[Choice, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables to set, without those that are set already."""
        return {choice.name: choice.value for choice in self.choices if choice.value and not environ.get(choice.name)}

    def lines(self, environ: Mapping[str, str]) -> list[str]:
        """Return lines with the variables and reasons, the ports left out, and the notes."""
        lines = [_line(choice, environ.get(choice.name, "")) for choice in self.choices]
        lines += [f"# left out: {port}, {why}" for port, why in self.left_out]
        return lines + [f"# {note}" for note in self.notes]


def discover_on_this_node(
    own_address: str, environ: Mapping[str, str], *, plugin_variables: Mapping[str, str]
) -> Fabric:
    """Return the settings for the node that this process runs on."""
    return discover(
        own_address,
        interfaces=address.interface_by_address(),
        hcas=hcas.read(),
        libraries=environ.get("LD_LIBRARY_PATH", ""),
        plugin_variables=plugin_variables,
    )


def discover(
    own_address: str,
    *,
    interfaces: Mapping[str, str],
    hcas: hcas.Hcas,
    root: Path = Path("/"),
    libraries: str = "",
    plugin_variables: Mapping[str, str] | None = None,
) -> Fabric:
    """Return the settings for a node whose ``own_address`` is the source of its route to the head.

    ``interfaces`` has the interface of each address, ``libraries`` is LD_LIBRARY_PATH, ``plugin_variables`` the site's
    variables for an image with a network plugin.
    """
    chosen = rails.choose(hcas)
    interface = address.interface_of(own_address, interfaces)
    why = f"has {own_address}, by which this node and the head reach each other"
    missing = f"no interface has {own_address}"
    return Fabric(
        choices=(
            Choice(NAMES[0], f"={interface}" if interface else "", why if interface else missing),
            Choice(NAMES[1], interface, why if interface else missing),
            Choice(NAMES[2], chosen.nccl(), chosen.why),
            Choice(NAMES[3], *rails.gid_index(chosen.ports)),
            *_plugin_choices(plugin_variables or {}, find_plugin(root, libraries)),
        ),
        left_out=chosen.left_out,
        notes=tuple(_plugin_notes(hcas, root, libraries)),
    )


def find_plugin(root: Path, libraries: str) -> str:
    """Return the first plugin on LD_LIBRARY_PATH and in the installers' folders, empty for none."""
    for folder in [*filter(None, libraries.split(os.pathsep)), *_PLUGIN_FOLDERS]:
        for plugin in _PLUGINS:
            if (root / folder.lstrip("/") / plugin).exists():
                return str(Path("/", folder.lstrip("/"), plugin))
    return ""


def _plugin_choices(variables: Mapping[str, str], plugin: str) -> Iterator[Choice]:
    """Yield the site's variables, unset without a plugin: NCCL_NET=OFI, for example, then ends the job."""
    why = f"by the profile, for {plugin}" if plugin else "the image has no plugin"
    for name, value in variables.items():
        yield Choice(name, value if plugin else "", why)


def _plugin_notes(hcas: hcas.Hcas, root: Path, libraries: str) -> Iterator[str]:
    """Name the EFA and Slingshot devices and their plugin, without which NCCL silently uses TCP."""
    for name, devices in (("EFA", hcas.efa), ("Slingshot", hcas.slingshot)):
        if devices:
            plugin = find_plugin(root, libraries)
            found = f"plugin {plugin}" if plugin else "no plugin (aws-ofi-nccl), so NCCL would use TCP"
            yield f"{name}: {', '.join(devices)}; {found}"


def _line(choice: Choice, given: str) -> str:
    if given:
        return f"{choice.name}={given}  # kept as set" + (f"; detected: {choice.value}" if choice.value else "")
    return f"{choice.name}={choice.value}  # {choice.why}" if choice.value else f"# {choice.name} unset: {choice.why}"
