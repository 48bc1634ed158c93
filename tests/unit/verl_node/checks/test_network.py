"""Checks of addresses, names and settings of NCCL and Gloo, each with a planted fault."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from verl_node.checks import CHECKS
from verl_node.checks.check import Check
from verl_node.checks.node import limits, nccl, network, rdma
from verl_node.network import address as addresses
from verl_node.settings.settings import Settings

from tests.support.node.fabric_tree import Tree
from tests.unit.verl_node.network.test_fabric import unpacked

WORKER = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_NNODES": "2",
    "SLURM_NODEID": "1",
    "VERLJOB_PLATFORM": "cuda",
    "VERLJOB_HEAD_NODE": "n1",
}


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Tree]:
    """Replaces this node by a recorded one."""

    def load(name: str) -> Tree:
        tree = unpacked(name, tmp_path)
        rdma._read.cache_clear()
        monkeypatch.setattr(rdma, "ROOT", tree.root)
        monkeypatch.setattr(addresses, "interface_by_address", lambda: tree.addresses)
        return tree

    return load


def severity(check: Check, environ: dict[str, str]) -> str:
    return check(Settings.from_env(environ), 8).severity


def resolves(monkeypatch: pytest.MonkeyPatch, address: str, after_s: float = 0.0) -> None:
    def answer(*_: Any, **__: Any) -> list[Any]:
        time.sleep(after_s)
        if not address:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


@pytest.mark.parametrize(
    ("address", "after_s", "expected"),
    [("10.0.0.1", 0.0, "ok"), ("127.0.1.1", 0.0, "fail"), ("", 0.0, "fail"), ("10.0.0.1", 0.06, "warn")],
)
def test_heads_name_must_resolve_quickly_to_another_node(
    address: str, after_s: float, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolves(monkeypatch, address, after_s)
    found = network.head_name_resolves.run(Settings.from_env(WORKER), 8, 0.05)

    assert found.severity == expected
    assert bool(found.fix) == (expected != "ok")


def test_bridge_and_loopback_are_not_usable_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docker0" / "bridge").mkdir(parents=True)
    (tmp_path / "eth0").mkdir()
    monkeypatch.setattr(network, "NET", tmp_path)
    monkeypatch.setattr(
        addresses, "interface_by_address", lambda: {"172.17.0.1": "docker0", "10.0.0.2": "eth0", "127.0.0.1": "lo"}
    )

    bridged = network.own_address_is_reachable(Settings.from_env({**WORKER, "VERLJOB_NODE_ADDRESS": "172.17.0.1"}), 8)
    assert (bridged.severity, "the bridge docker0" in bridged.seen) == ("fail", True)
    assert severity(network.own_address_is_reachable, {**WORKER, "VERLJOB_NODE_ADDRESS": "10.0.0.2"}) == "ok"
    monkeypatch.setattr(addresses, "own", lambda *_: "127.0.0.1")
    assert severity(network.own_address_is_reachable, WORKER) == "fail"
    assert severity(network.own_address_is_reachable, {}) == "ok"  # a single node needs none


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "ok"),
        (socket.timeout("timed out"), "fail"),
        (OSError(errno.EHOSTUNREACH, "no route"), "fail"),
        (None, "ok"),
    ],
)
def test_closed_port_passes_and_filtered_port_fails(
    error: OSError | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {**WORKER, "VERLJOB_HEAD_PORTS": "20000,20001,20002"}

    def connect(target: tuple[str, int], **__: Any) -> socket.socket:
        if error and target[1] == 20001:
            raise error
        return socket.socket()

    monkeypatch.setattr(socket, "create_connection", connect)

    assert severity(network.head_port_is_open, environ) == expected
    assert severity(network.head_port_is_open, {**environ, "SLURM_NODEID": "0"}) == "ok"


def test_unreachable_head_is_not_reported_as_a_firewall(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: Any, **__: Any) -> socket.socket:
        raise socket.timeout("timed out")

    monkeypatch.setattr(socket, "create_connection", connect)

    assert severity(network.head_port_is_open, WORKER) == "ok"


def test_real_port_without_a_listener_passes() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        environ = {**WORKER, "VERLJOB_HEAD_ADDRESS": "127.0.0.1"}
        ports = f"1024,{probe.getsockname()[1]},1025"
    assert severity(network.head_port_is_open, {**environ, "VERLJOB_HEAD_PORTS": ports}) == "ok"


@pytest.mark.parametrize(
    ("tree", "check", "environ", "message"),
    [
        ("ib_ports_down", "ports_are_up", {}, "mlx5_0:1 1: DOWN"),
        ("ib_ports_down", "hcas_that_are_named_exist", {"NCCL_IB_HCA": "=mlx5_1:1,mlx5_42"}, "mlx5_42 does not exist"),
        ("ib_ports_down", "hcas_that_are_named_exist", {"NCCL_IB_HCA": "=mlx5_0"}, "mlx5_0 is not active"),
        ("roce_v1_and_v2", "gid_index_fits", {"NCCL_IB_GID_INDEX": "1"}, "link-local"),
        ("roce_v1_and_v2", "gid_index_fits", {"NCCL_IB_GID_INDEX": "2"}, "RoCE v1"),
        ("roce_v1_and_v2", "gid_index_fits", {"NCCL_IB_GID_INDEX": "9"}, "no such entry"),
        ("roce_v1_and_v2", "interfaces_that_are_named_exist", {"NCCL_SOCKET_IFNAME": "ib0"}, "no interface ib0"),
        ("roce_v1_and_v2", "interfaces_that_are_named_exist", {"GLOO_SOCKET_IFNAME": "^lo"}, "exact name"),
        ("gh200_bond_and_ib", "interfaces_that_are_named_exist", {"GLOO_SOCKET_IFNAME": "enp1s0f0np0"}, "no address"),
        ("docker_bridge_first", "interfaces_that_are_named_exist", {"NCCL_SOCKET_IFNAME": "=lo"}, "no other node"),
        ("ib_eight_rails_h100", "devices_are_in_the_container", {}, "/dev/infiniband/"),
        ("slingshot_without_plugin", "nothing_falls_back_to_tcp", {}, "no plugin"),
        ("ib_eight_rails_h100", "nothing_falls_back_to_tcp", {"NCCL_IB_DISABLE": "1"}, "NCCL_IB_DISABLE=1"),
        ("ib_eight_rails_h100", "nothing_falls_back_to_tcp", {"NCCL_NET": "Socket"}, "NCCL_NET=Socket"),
    ],
)
def test_wrong_network_setting_is_reported_with_a_fix(
    tree: str, check: str, environ: dict[str, str], message: str, recorded: Callable[[str], Tree]
) -> None:
    recorded(tree)

    (chosen,) = (known for known in CHECKS if known.name.endswith(f".{check}"))
    found = chosen(Settings.from_env({**WORKER, **environ}), 8)

    assert found.severity in ("warn", "fail")
    assert message in found.seen
    assert found.fix


@pytest.mark.parametrize(
    ("tree", "environ"),
    [
        ("ib_eight_rails_h100", {"NCCL_IB_HCA": "mlx5_0,mlx5_1", "NCCL_IB_DISABLE": "0"}),
        ("guides_eight_rails_two_storage", {"NCCL_IB_HCA": "mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_8,mlx5_9",
                                            "NCCL_IB_GID_INDEX": "3", "NCCL_SOCKET_IFNAME": "ens50f0"}),
        ("efa_with_plugin", {"NCCL_SOCKET_IFNAME": "^lo,docker", "GLOO_SOCKET_IFNAME": "eth0"}),
        ("docker_bridge_first", {}),
    ],
)  # fmt: skip
def test_correct_network_settings_pass(tree: str, environ: dict[str, str], recorded: Callable[[str], Tree]) -> None:
    add_devices(recorded(tree))

    for check in (
        rdma.ports_are_up,
        nccl.hcas_that_are_named_exist,
        nccl.gid_index_fits,
        nccl.interfaces_that_are_named_exist,
        rdma.devices_are_in_the_container,
        rdma.nothing_falls_back_to_tcp,
    ):
        assert severity(check, {**WORKER, **environ}) == "ok", check.name


def add_devices(tree: Tree) -> None:
    """Add the devices of the kernel's ib_uverbs, and their device nodes in the container."""
    for number, hca in enumerate(sorted((tree.root / "sys/class/infiniband").glob("*"))):
        folder = tree.root / f"sys/class/infiniband_verbs/uverbs{number}"
        folder.mkdir(parents=True)
        (folder / "ibdev").write_text(f"{hca.name}\n")
        (tree.root / "dev/infiniband").mkdir(parents=True, exist_ok=True)
        (tree.root / f"dev/infiniband/uverbs{number}").touch()


def test_network_checks_are_idle_without_several_gpu_nodes(recorded: Callable[[str], Tree]) -> None:
    recorded("slingshot_without_plugin")

    assert severity(rdma.nothing_falls_back_to_tcp, {"VERLJOB_PLATFORM": "cuda"}) == "idle"
    assert severity(rdma.nothing_falls_back_to_tcp, {**WORKER, "VERLJOB_PLATFORM": "cpu"}) == "idle"


def test_amd_settings_and_locked_memory_are_checked_by_platform(
    recorded: Callable[[str], Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded("docker_bridge_first")
    rocm = {**WORKER, "VERLJOB_PLATFORM": "rocm"}
    assert severity(nccl.amd_settings_are_made, {**rocm, "RCCL_MSCCL_ENABLE": "1"}) == "warn"
    right = {"RCCL_MSCCL_ENABLE": "0", "HSA_NO_SCRATCH_RECLAIM": "1"}
    assert severity(nccl.amd_settings_are_made, {**rocm, **right}) == "ok"
    assert severity(nccl.amd_settings_are_made, WORKER) == "idle"

    monkeypatch.setattr(limits.resource, "getrlimit", lambda _: (65536, 65536))
    assert severity(limits.memory_can_be_locked, WORKER) == "warn"
    assert severity(limits.memory_can_be_locked, {**WORKER, "VERLJOB_PLATFORM": "cpu"}) == "ok"


def test_limited_locked_memory_fails_with_rdma(
    recorded: Callable[[str], Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded("ib_eight_rails_h100")
    monkeypatch.setattr(limits.resource, "getrlimit", lambda _: (65536, 65536))

    assert severity(limits.memory_can_be_locked, WORKER) == "fail"
    assert severity(limits.memory_can_be_locked, {**WORKER, "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "n1",
                                                  "SLURM_NODEID": "0"}) == "warn"  # fmt: skip
