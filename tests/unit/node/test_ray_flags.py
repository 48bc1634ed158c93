from __future__ import annotations

from pathlib import Path

import pytest
from verl_node import ray_environment, ray_flags
from verl_node.errors import BadSettings, CheckFailed
from verl_node.ports import HeadPorts, NodePorts
from verl_node.ray_flags import Share

HEAD = HeadPorts(32000, 32001, 32002)
PORTS = NodePorts.deal(20000, 20511, HEAD)
SHARE = Share(cpus=28, gpus=8, memory=None, object_store_memory=None)


def head_argv(version: str, temp_dir: str = "/scratch/ray") -> list[str]:
    return ray_flags.head_argv(
        ray_flags.supported(version),
        node_address="10.0.0.1",
        host="n1",
        ports=PORTS,
        head=HEAD,
        share=SHARE,
        temp_dir=Path(temp_dir),
    )


def test_a_worker_is_told_every_address_port_and_number() -> None:
    argv = ray_flags.worker_argv(
        "10.0.0.1:32001", node_address="10.0.0.2", host="n2", ports=PORTS, share=SHARE, temp_dir=Path("/scratch/ray")
    )

    assert argv == [
        "ray",
        "start",
        "--address=10.0.0.1:32001",
        "--node-ip-address=10.0.0.2",
        "--node-name=n2",
        "--node-manager-port=20000",
        "--object-manager-port=20001",
        "--dashboard-agent-listen-port=20002",
        "--dashboard-agent-grpc-port=20003",
        "--runtime-env-agent-port=20004",
        "--metrics-export-port=20005",
        "--min-worker-port=20011",
        "--max-worker-port=20511",
        "--num-cpus=28",
        "--num-gpus=8",
        "--temp-dir=/scratch/ray",
        "--log-color=false",
        "--block",
    ]


@pytest.mark.parametrize(
    ("version", "takes_it"), [("2.40.0", True), ("2.44.1", True), ("2.45.0", False), ("2.60.0", False)]
)
def test_the_grpc_port_of_the_dashboard_is_pinned_where_ray_has_it(version: str, takes_it: bool) -> None:
    assert ("--dashboard-grpc-port=20008" in head_argv(version)) == takes_it


@pytest.mark.parametrize("version", ["", "2.9.3", "1.13.0"])
def test_no_ray_or_one_that_is_too_old_fails_the_node(version: str) -> None:
    with pytest.raises(CheckFailed, match=r"not installed|older than 2\.40"):
        ray_flags.supported(version)


def test_a_temp_dir_is_as_long_as_a_socket_path_allows() -> None:
    longest = "/" + "x" * 42
    assert f"--temp-dir={longest}" in head_argv("2.60.0", longest)

    with pytest.raises(BadSettings, match="108 bytes, and 107 are allowed"):
        head_argv("2.60.0", longest + "x")


def test_head_ports_at_the_start_of_the_block_are_left_out_and_in_its_middle_are_refused() -> None:
    assert NodePorts.deal(32000, 32511, HEAD).node_manager == 32003

    with pytest.raises(BadSettings, match="in its middle"):
        NodePorts.deal(31900, 32511, HEAD)
    with pytest.raises(BadSettings, match="smaller than 64"):
        NodePorts.deal(20000, 20060, HEAD)


def test_the_environment_pins_what_no_flag_pins_and_leaves_the_users_values() -> None:
    built = ray_environment.build(
        {"PYTHONPATH": "/mine", "RAY_health_check_period_ms": "9000", "RAY_ADDRESS": "somebody:6379"},
        gcs="10.0.0.1:32001",
        ports=PORTS,
        platform="cpu",
        gpus=1,
        ray=(2, 60),
        start_timeout_s=180,
        verl_checkout=Path("/src/verl"),
        training={"HF_HUB_OFFLINE": "1"},
    )

    assert (built["AUTOSCALER_METRIC_PORT"], built["DASHBOARD_METRIC_PORT"], built["MASTER_PORT"]) == (
        "20006",
        "20007",
        "20010",
    )
    assert built["RAY_ADDRESS"] == "10.0.0.1:32001"
    assert built["PYTHONPATH"] == "/src/verl:/mine"
    assert built["RAY_health_check_period_ms"] == "9000"
    assert built["RAY_gcs_rpc_server_reconnect_timeout_s"] == "10"
    assert built["RAY_START_HOOK"] == "verl_node.ray_hook.before_start"
    assert built["HF_HUB_OFFLINE"] == "1"
