"""Network settings of recorded nodes: each file of tests/data/fabric/ has a node and its expected settings."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from verl_node.network import address, fabric, hcas

from tests.support.node.fabric_tree import Tree
from tests.support.paths import FABRIC

TREES = sorted(FABRIC.iterdir())


def discovered(tree: Tree, libraries: str = "") -> fabric.Fabric:
    return fabric.discover(
        tree.at, interfaces=tree.addresses, hcas=hcas.read(tree.root), root=tree.root, libraries=libraries
    )


def unpacked(name: str, folder: Path) -> Tree:
    return Tree(folder).unpack(next(tree for tree in TREES if tree.name == name))


@pytest.mark.parametrize("recorded", TREES, ids=lambda path: str(path.name))
def test_recorded_node_gets_the_expected_settings(recorded: Path, tmp_path: Path) -> None:
    tree = Tree(tmp_path).unpack(recorded)

    assert {choice.name: choice.value for choice in discovered(tree).choices} == tree.expected
    assert set(tree.expected) == set(fabric.NAMES)


def test_at_least_twelve_recorded_nodes_exist() -> None:
    assert len(TREES) >= 12


@pytest.mark.parametrize("installed", [True, False])
def test_the_profiles_variables_need_a_plugin_in_the_image(tmp_path: Path, installed: bool) -> None:
    tree = unpacked("roce_v1_and_v2", tmp_path)
    if installed:
        plugin = tree.root / "opt" / "ofi" / "libnccl-net.so"
        plugin.parent.mkdir(parents=True)
        plugin.touch()
    variables = {"NCCL_NET": "AWS Libfabric", "FI_CXI_RX_MATCH_MODE": "software"}

    node = fabric.discover(
        tree.at, interfaces=tree.addresses, hcas=hcas.read(tree.root), root=tree.root,
        libraries="/usr/lib64:/opt/ofi", plugin_variables=variables,
    )  # fmt: skip

    set_by_node = node.variables({"FI_CXI_RX_MATCH_MODE": "hybrid"})
    assert set_by_node.get("NCCL_NET") == ("AWS Libfabric" if installed else None)
    assert "FI_CXI_RX_MATCH_MODE" not in set_by_node  # the user's own
    reason = "by the profile, for /opt/ofi/libnccl-net.so" if installed else "the image has no plugin"
    assert any("NCCL_NET" in line and reason in line for line in node.lines({}))


def test_variables_set_by_the_user_are_kept_and_shown(tmp_path: Path) -> None:
    given = {"NCCL_IB_HCA": "mlx5_3", "NCCL_SOCKET_IFNAME": ""}
    node = discovered(unpacked("roce_v1_and_v2", tmp_path))

    assert node.variables(given) == {
        "NCCL_SOCKET_IFNAME": "=eno1",
        "GLOO_SOCKET_IFNAME": "eno1",
        "NCCL_IB_GID_INDEX": "3",
    }
    lines = node.lines(given)
    assert "NCCL_IB_HCA=mlx5_3  # kept as set; detected: =mlx5_0:1,mlx5_1:1" in lines
    assert "NCCL_IB_GID_INDEX=3  # RoCE v2 by 11.0.0.72 on mlx5_0:1" in lines


def test_every_unused_port_has_a_reason(tmp_path: Path) -> None:
    node = discovered(unpacked("ib_ports_down", tmp_path))

    assert dict(node.left_out) == {
        "mlx5_0:1": "its port is 1: DOWN, 3: Disabled",
        "mlx5_11:1": "its port is 2: INIT, 5: LinkUp",
        "mlx5_2:1": "Ethernet, and others are InfiniBand",
    }
    storage = discovered(unpacked("guides_eight_rails_two_storage", tmp_path / "guides"))
    assert {why for _, why in storage.left_out} == {"shares no PCIe switch with a GPU, as others do"}
    assert [what for what, _ in storage.left_out] == ["mlx5_6:1", "mlx5_7:1"]


def test_fabrics_that_need_a_plugin_are_noted(tmp_path: Path) -> None:
    efa = unpacked("efa_with_plugin", tmp_path / "efa")
    (note,) = discovered(efa).notes
    assert note == "EFA: rdmap79s0, rdmap80s0; plugin /opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so"

    slingshot = unpacked("slingshot_without_plugin", tmp_path / "slingshot")
    (note,) = discovered(slingshot).notes
    assert note.endswith("no plugin (aws-ofi-nccl), so NCCL would use TCP")
    plugin = slingshot.root / "site" / "librccl-net-ofi.so"
    plugin.parent.mkdir()
    plugin.touch()
    (note,) = discovered(slingshot, libraries="/elsewhere:/site").notes
    assert note.endswith("plugin /site/librccl-net-ofi.so")


def test_interfaces_match_the_kernels(tmp_path: Path) -> None:
    interfaces = address.interface_by_address()

    assert address.interface_of("127.0.0.1", interfaces) == "lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        assert address.interface_of(probe.getsockname()[0], interfaces) in {name for _, name in socket.if_nameindex()}
    assert address.interface_of("192.0.2.200", interfaces) == ""
    assert address.interface_of("head.example", interfaces) == ""


def test_ipv6_addresses_are_compared_as_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "if_inet6"
    file.write_text("fd9316d359b600000000000000000021 04 40 00 80     eno0\n")
    monkeypatch.setattr(address, "IF_INET6", file)

    assert address.interface_of("fd93:16d3:59b6::21", address.interface_by_address()) == "eno0"
    assert address.interface_of("fd93:16d3:59b6:0::21%eno0", address.interface_by_address()) == "eno0"
