from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from verl_node.errors import BadSettings, CheckFailed
from verl_node.network.fabric import Choice, Fabric
from verl_node.ray_node import environment, flags
from verl_node.ray_node.flags import Share
from verl_node.settings.ports import HeadPorts, NodePorts
from verl_node.settings.settings import Settings

HEAD = HeadPorts(32000, 32001, 32002)
PORTS = NodePorts.divide(20000, 20511, HEAD)
SHARE = Share(cpus=28, gpus=8, memory=None, object_store_memory=None)


def head_argv(version: str, temp_dir: str = "/scratch/ray", asked: str = "") -> list[str]:
    parsed = flags.supported(version)
    return flags.head_argv(
        parsed,
        node_address="10.0.0.1",
        dashboard=flags.dashboard_host(parsed, asked, node_address="10.0.0.1"),
        host="n1",
        ports=PORTS,
        head=HEAD,
        share=SHARE,
        temp_dir=Path(temp_dir),
    )


def test_a_worker_starts_with_every_address_port_and_number() -> None:
    argv = flags.worker_argv(
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


@pytest.mark.parametrize(
    ("version", "asked", "host"),
    [
        ("2.60.0", "", "127.0.0.1"),
        ("2.60.0", "0", None),
        ("2.60.0", "node", "10.0.0.1"),
        ("2.51.2", "", None),
        ("2.51.2", "1", "127.0.0.1"),
        ("2.44.1", "node", "10.0.0.1"),
    ],
)
def test_the_dashboard_is_on_the_loopback_and_off_by_default_without_tokens(
    version: str, asked: str, host: str | None
) -> None:
    argv = head_argv(version, asked=asked)

    assert (f"--dashboard-host={host}" in argv) == (host is not None)
    assert ("--include-dashboard=false" in argv) == (host is None)


@pytest.mark.parametrize("version", ["", "2.9.3", "1.13.0"])
def test_a_missing_or_old_ray_fails_the_node(version: str) -> None:
    with pytest.raises(CheckFailed, match=r"not installed|older than 2\.40"):
        flags.supported(version)


def test_a_temp_dir_is_as_long_as_a_socket_path_allows() -> None:
    longest = "/" + "x" * 42
    assert f"--temp-dir={longest}" in head_argv("2.60.0", longest)

    with pytest.raises(BadSettings, match="108 bytes, and 107 are allowed"):
        head_argv("2.60.0", longest + "x")


def test_head_ports_are_skipped_at_the_start_of_the_block_and_refused_in_its_middle() -> None:
    assert NodePorts.divide(32000, 32511, HEAD).node_manager == 32003

    with pytest.raises(BadSettings, match="in its middle"):
        NodePorts.divide(31900, 32511, HEAD)
    with pytest.raises(BadSettings, match="smaller than 64"):
        NodePorts.divide(20000, 20060, HEAD)


def built(environ: dict[str, str], token_file: Path | None = None, silence_s: float = 60) -> dict[str, str]:
    settings = replace(
        Settings.from_env(environ), silence_s=silence_s, token_file=token_file, verl_checkout=Path("/src/verl")
    )
    return environment.build(settings, ports=PORTS, gpus=1, ray=(2, 60), training={"HF_HUB_OFFLINE": "1"})


def test_the_environment_sets_ports_without_a_flag_and_keeps_the_users_values() -> None:
    found = built({"PYTHONPATH": "/mine", "RAY_health_check_period_ms": "9000", "RAY_ADDRESS": "somebody:6379"})

    pinned = ("AUTOSCALER_METRIC_PORT", "DASHBOARD_METRIC_PORT", "MASTER_PORT")
    assert [found[name] for name in pinned] == ["20006", "20007", "20010"]
    assert found["RAY_ADDRESS"] == ""
    assert found["PYTHONPATH"] == "/src/verl:/mine"
    assert found["RAY_health_check_period_ms"] == "9000"
    assert found["RAY_START_HOOK"] == "verl_node.ray_node.fast_start.before_start"
    assert found["HF_HUB_OFFLINE"] == "1"


def test_the_cluster_adds_its_address_and_the_variables_of_the_network_that_are_not_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choices = (Choice("GLOO_SOCKET_IFNAME", "eth0", "why"), Choice("NCCL_IB_HCA", "=mlx5_0", "why"))
    monkeypatch.setattr(
        environment.fabric,
        "discover_on_this_node",
        lambda address, _, plugin_variables: Fabric(choices, notes=(address, plugin_variables["FI_X"])),
    )
    notes: list[str] = []

    found = environment.complete(
        {"NCCL_IB_HCA": "=mlx5_7", "A": "b"},
        gcs="10.0.0.1:32001",
        own_address="10.0.0.1",
        plugin_variables={"FI_X": "1"},
        doctor="",
        note=notes.append,
    )

    assert found == {
        "NCCL_IB_HCA": "=mlx5_7", "A": "b", "GLOO_SOCKET_IFNAME": "eth0", "RAY_ADDRESS": "10.0.0.1:32001",
    }  # fmt: skip
    assert notes == ["fabric: GLOO_SOCKET_IFNAME eth0; 10.0.0.1; 1"]


@pytest.mark.parametrize("silence_s", [8, 60, 600])
def test_no_timeout_of_ray_is_shorter_than_our_patience(silence_s: float) -> None:
    found = {name[4:]: value for name, value in built({}, silence_s=silence_s).items() if name.startswith("RAY_")}

    def seconds(name: str) -> float:
        return float(found[name]) / (1000 if name.endswith("_ms") else 1)

    period_s, timeout_s = seconds("health_check_period_ms"), seconds("health_check_timeout_ms")
    assert int(found["health_check_failure_threshold"]) * min(period_s, timeout_s) >= 15 * silence_s - 0.1
    assert seconds("py_gcs_connect_timeout_s") >= max(30, 2 * silence_s)
    for name, rays in {
        "gcs_rpc_server_reconnect_timeout_s": 60,
        "gcs_server_request_timeout_seconds": 60,
        "grpc_keepalive_timeout_ms": 20,
        "grpc_client_keepalive_timeout_ms": 120,
        "actor_scheduling_queue_max_reorder_wait_seconds": 30,
    }.items():
        assert seconds(name) >= max(rays, 15 * silence_s)


def test_ray_requires_the_jobs_token_whatever_the_user_exported() -> None:
    users = {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "mine", "RAY_AUTH_TOKEN_PATH": "/mine"}

    found = built(users, Path("/run/verljob/token"))

    assert (found["RAY_AUTH_MODE"], found["RAY_AUTH_TOKEN_PATH"]) == ("token", "/run/verljob/token")
    assert "RAY_AUTH_TOKEN" not in found


def test_without_a_token_ray_creates_none() -> None:
    assert built({})["RAY_AUTH_MODE"] == "disabled"
    assert built({"RAY_AUTH_MODE": "token"})["RAY_AUTH_MODE"] == "token"
