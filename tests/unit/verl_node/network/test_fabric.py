"""Each file of trees/ is a node as tools of its kind print it, and what has to be told to NCCL and Gloo there."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from verl_node.network import fabric, hcas, interfaces

from tests.support.node.fabric_tree import Tree
from tests.support.paths import FABRIC

TREES = sorted(FABRIC.iterdir())


def found(tree: Tree, libraries: str = "") -> fabric.Fabric:
    return fabric.find(
        tree.at, addresses=tree.addresses, hcas=hcas.read(tree.root), root=tree.root, libraries=libraries
    )


def unpacked(name: str, folder: Path) -> Tree:
    return Tree(folder).unpack(next(tree for tree in TREES if tree.name == name))


@pytest.mark.parametrize("recorded", TREES, ids=lambda path: str(path.name))
def test_a_recorded_node_is_told_what_fits_it(recorded: Path, tmp_path: Path) -> None:
    tree = Tree(tmp_path).unpack(recorded)

    assert {choice.name: choice.value for choice in found(tree).choices} == tree.wanted
    assert set(tree.wanted) == set(fabric.NAMES)


def test_there_are_at_least_twelve_of_them() -> None:
    assert len(TREES) >= 12


def test_what_the_user_set_stays_and_is_shown(tmp_path: Path) -> None:
    given = {"NCCL_IB_HCA": "mlx5_3", "NCCL_SOCKET_IFNAME": ""}
    node = found(unpacked("roce_v1_and_v2", tmp_path))

    assert node.variables(given) == {
        "NCCL_SOCKET_IFNAME": "=eno1",
        "GLOO_SOCKET_IFNAME": "eno1",
        "NCCL_IB_GID_INDEX": "3",
    }
    lines = node.lines(given)
    assert "NCCL_IB_HCA=mlx5_3  # stays as it was set; found: =mlx5_0:1,mlx5_1:1" in lines
    assert "NCCL_IB_GID_INDEX=3  # RoCE v2 by 11.0.0.72 on mlx5_0:1" in lines


def test_every_port_that_is_left_out_has_its_reason(tmp_path: Path) -> None:
    node = found(unpacked("ib_ports_down", tmp_path))

    assert dict(node.left_out) == {
        "mlx5_0:1": "its port is 1: DOWN, 3: Disabled",
        "mlx5_11:1": "its port is 2: INIT, 5: LinkUp",
        "mlx5_2:1": "Ethernet, and there is InfiniBand",
    }
    storage = found(unpacked("guides_eight_rails_two_storage", tmp_path / "guides"))
    assert {why for _, why in storage.left_out} == {"shares no PCIe switch with a GPU, as others do"}
    assert [what for what, _ in storage.left_out] == ["mlx5_6:1", "mlx5_7:1"]


def test_a_fabric_behind_a_plugin_is_told_of(tmp_path: Path) -> None:
    efa = unpacked("efa_with_plugin", tmp_path / "efa")
    (note,) = found(efa).notes
    assert note == "EFA: rdmap79s0, rdmap80s0; plugin /opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so"

    slingshot = unpacked("slingshot_without_plugin", tmp_path / "slingshot")
    (note,) = found(slingshot).notes
    assert note.endswith("no plugin (aws-ofi-nccl), so NCCL would use TCP")
    plugin = slingshot.root / "site" / "librccl-net-ofi.so"
    plugin.parent.mkdir()
    plugin.touch()
    (note,) = found(slingshot, libraries="/elsewhere:/site").notes
    assert note.endswith("plugin /site/librccl-net-ofi.so")


def test_the_addresses_of_this_machine_are_the_kernels(tmp_path: Path) -> None:
    held = interfaces.addresses()

    assert interfaces.holder("127.0.0.1", held) == "lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        assert interfaces.holder(probe.getsockname()[0], held) in {name for _, name in socket.if_nameindex()}
    assert interfaces.holder("192.0.2.200", held) == ""
    assert interfaces.holder("head.example", held) == ""


def test_ipv6_is_compared_as_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "if_inet6"
    file.write_text("fd9316d359b600000000000000000021 04 40 00 80     eno0\n")
    monkeypatch.setattr(interfaces, "IF_INET6", file)

    assert interfaces.holder("fd93:16d3:59b6::21", interfaces.addresses()) == "eno0"
    assert interfaces.holder("fd93:16d3:59b6:0::21%eno0", interfaces.addresses()) == "eno0"
