"""Unpacks the recorded network of a node into a tree of /sys that verl_node reads.

A line is a keyword and its fields:

    net NAME                            a network interface; `bond NAME MASTER` puts one into a bond
    ip NAME ADDRESS                     as `ip -o addr` prints them, in its order
    hca NAME DRIVER PCI-PATH [NAME,…]   an RDMA device and its network interfaces; PCI-PATH is `-` for none
    port HCA NUMBER STATE LINK GBPS     STATE is active, down (cable out) or init (no subnet manager)
    gid HCA PORT INDEX v1|v2 NAME ADDRESS
    gpu VENDOR CLASS PCI-PATH
    cxi NAME · file PATH
    at ADDRESS                          the node's address, by route to the head
    want NAME [VALUE]                   an expected variable
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

_STATES = {
    "active": ("4: ACTIVE", "5: LinkUp"),
    "down": ("1: DOWN", "3: Disabled"),
    "init": ("2: INIT", "5: LinkUp"),
}
_ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"
_TYPES = {"v1": "IB/RoCE v1", "v2": "RoCE v2"}


@dataclass
class Tree:
    root: Path
    at: str = ""
    addresses: dict[str, str] = field(default_factory=dict)
    expected: dict[str, str] = field(default_factory=dict)

    def unpack(self, recorded: Path) -> Tree:
        for line in recorded.read_text().splitlines():
            keyword, *fields = line.partition("#")[0].split() or [""]
            if keyword:
                handle: Callable[..., None] = getattr(self, f"_{keyword}")
                handle(*fields)
        return self

    def _net(self, name: str) -> None:
        (self.root / "sys/class/net" / name).mkdir(parents=True)

    def _bond(self, name: str, master: str) -> None:
        (self.root / "sys/class/net" / name / "master").symlink_to(f"../{master}")

    def _ip(self, name: str, address: str) -> None:
        self.addresses.setdefault(address.partition("/")[0], name)

    def _hca(self, name: str, driver: str, path: str, interfaces: str = "") -> None:
        self._write(f"sys/class/infiniband/{name}/node_type", "1: CA")
        if path == "-":
            return
        device = self._device(path)
        (self.root / "sys/class/infiniband" / name / "device").symlink_to(device)
        (self.root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        if not (device / "driver").exists():
            (device / "driver").symlink_to(self.root / "sys/bus/pci/drivers" / driver)
        for interface in filter(None, interfaces.split(",")):
            (device / "net" / interface).mkdir(parents=True, exist_ok=True)

    def _port(self, hca: str, number: str, state: str, link: str, gbps: str) -> None:
        folder = f"sys/class/infiniband/{hca}/ports/{number}"
        for name, text in zip(("state", "phys_state"), _STATES[state]):
            self._write(f"{folder}/{name}", text)
        self._write(f"{folder}/link_layer", link)
        self._write(f"{folder}/rate", f"{gbps} Gb/sec (4X)")
        if link == "Ethernet":
            for index in range(16):
                self._write(f"{folder}/gids/{index}", _ZERO)

    def _gid(self, hca: str, number: str, index: str, *entry: str) -> None:
        version, interface, address = entry
        folder = f"sys/class/infiniband/{hca}/ports/{number}"
        self._write(f"{folder}/gids/{index}", address)
        self._write(f"{folder}/gid_attrs/types/{index}", _TYPES[version])
        self._write(f"{folder}/gid_attrs/ndevs/{index}", interface)

    def _gpu(self, vendor: str, kind: str, path: str) -> None:
        device = self._device(path)
        (device / "vendor").write_text(f"0x{vendor}\n")
        (device / "class").write_text(f"0x{kind}00\n")

    def _cxi(self, name: str) -> None:
        (self.root / "sys/class/cxi" / name).mkdir(parents=True)

    def _file(self, path: str) -> None:
        self._write(path, "")

    def _at(self, address: str) -> None:
        self.at = address

    def _want(self, name: str, value: str = "") -> None:
        self.expected[name] = value

    def _device(self, path: str) -> Path:
        device = self.root / "sys/devices" / path
        device.mkdir(parents=True, exist_ok=True)
        listed = self.root / "sys/bus/pci/devices"
        listed.mkdir(parents=True, exist_ok=True)
        if not (listed / device.name).exists():
            (listed / device.name).symlink_to(device)
        return device

    def _write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
