"""RDMA devices from /sys: ports, GIDs, PCI paths, and those of the GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path

_GPU_VENDORS = ("0x10de", "0x1002")
# PCI classes 0x0300xx and 0x0302xx are display and 3D controllers, 0x1200xx processing accelerators (an MI300X).
_GPU_CLASSES = ("0x0300", "0x0302", "0x1200")
_ADAPTER = "1"  # node_type 1: CA; 4 (RNIC) is iWARP, which NCCL does not support
_ROCE_V2 = "RoCE v2"


@dataclass(frozen=True)
class Port:
    """One port of an RDMA device; ``card`` is its PCI path, ``interfaces`` all of the namespace."""

    hca: str
    number: int
    state: str
    physical: str
    link: str
    gbps: float
    card: tuple[str, ...]
    driver: str
    node_type: str
    bonded: bool
    folder: Path
    interfaces: frozenset[str]

    @property
    def name(self) -> str:
        """The name in NCCL_IB_HCA."""
        return f"{self.hca}:{self.number}"

    @property
    def active(self) -> bool:
        """Whether it carries data: ``4: ACTIVE`` and, if the driver reports it, ``5: LinkUp``."""
        return self.state.startswith("4") and self.physical[:1] in ("5", "")

    @property
    def adapter(self) -> bool:
        """Whether it is hardware with the InfiniBand verbs that NCCL needs."""
        return bool(self.card) and self.node_type[:1] in (_ADAPTER, "") and self.driver != "efa"


@dataclass(frozen=True)
class Gid:
    """One entry of a RoCE port's GID table; a lower ``rank`` is better."""

    index: int
    address: IPv6Address
    version_2: bool

    @property
    def routed(self) -> bool:
        """Whether the interface has a routed address; it always has a link-local one."""
        mapped = self.address.ipv4_mapped
        return not (mapped.is_link_local if mapped else self.address.is_link_local)

    @property
    def rank(self) -> int:
        """RoCE v2 before v1, which no router forwards; an IPv4 address before IPv6, link-local last."""
        return 4 * (not self.version_2) + 2 * (not self.routed) + (self.address.ipv4_mapped is None)


@dataclass(frozen=True)
class Hcas:
    """All ports of a node, the PCI paths of its GPUs, and its Slingshot devices."""

    ports: tuple[Port, ...]
    gpus: tuple[tuple[str, ...], ...] = ()
    slingshot: tuple[str, ...] = ()

    @property
    def efa(self) -> tuple[str, ...]:
        """Devices of AWS, which need libfabric."""
        return tuple(dict.fromkeys(port.hca for port in self.ports if port.driver == "efa"))


def read(root: Path = Path("/")) -> Hcas:
    """Read /sys, which has every device of the host, even in a container."""
    sys = root / "sys"
    folder = sys / "class" / "infiniband"
    interfaces = frozenset(_names(sys / "class" / "net"))
    ports = tuple(port for name in _names(folder) for port in _ports(folder / name, sys, interfaces))
    gpus = tuple(_gpus(sys)) if ports else ()
    return Hcas(ports, gpus, tuple(_names(sys / "class" / "cxi")))


def gids(port: Port) -> list[Gid]:
    """Return the used GIDs of a port that belong to an interface of this network namespace."""
    found = []
    for name in sorted((entry.name for entry in (port.folder / "gids").glob("*")), key=int):
        address = text(port.folder / "gids" / name)
        if not address.strip(":0"):
            continue  # unused, as most of some 256 are
        if text(port.folder / "gid_attrs" / "ndevs" / name) in port.interfaces:
            version_2 = text(port.folder / "gid_attrs" / "types" / name) == _ROCE_V2
            found.append(Gid(int(name), IPv6Address(address), version_2))
    return found


def text(file: Path) -> str:
    """Return a file's one line; empty if it does not exist or cannot be read (an unused GID)."""
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _ports(hca: Path, sys: Path, interfaces: frozenset[str]) -> Iterator[Port]:
    device = hca / "device"
    masters = [name for name in _names(device / "net") if (sys / "class" / "net" / name / "master").exists()]
    for number in _names(hca / "ports"):
        folder = hca / "ports" / number
        yield Port(
            hca=hca.name,
            number=int(number),
            state=text(folder / "state"),
            physical=text(folder / "phys_state"),
            link=text(folder / "link_layer"),
            gbps=_gbps(text(folder / "rate")),
            card=_path(device),
            driver=(device / "driver").resolve().name if (device / "driver").exists() else "",
            node_type=text(hca / "node_type"),
            bonded="bond" in hca.name or bool(masters),
            folder=folder,
            interfaces=interfaces,
        )


def _gbps(rate: str) -> float:
    """Read ``400 Gb/sec (4X NDR)``."""
    try:
        return float(rate.split(maxsplit=1)[0])
    except (IndexError, ValueError):
        return 0.0


def _gpus(sys: Path) -> Iterator[tuple[str, ...]]:
    folder = sys / "bus" / "pci" / "devices"
    for name in _names(folder):
        kind = text(folder / name / "class")[:6]
        if kind in _GPU_CLASSES and text(folder / name / "vendor") in _GPU_VENDORS:
            yield _path(folder / name)


def _path(device: Path) -> tuple[str, ...]:
    """Return the bridges above a PCI device and the device itself, empty for any other device."""
    parts = device.resolve().parts if device.exists() else ()
    return tuple(part for part in parts if part.startswith("pci") or part.count(":") == 2)


def _names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
