"""Patches of `ray start`, with stand-ins for the modules of Ray that they change."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from verl_node.ray_node import fast_start

RAYLET = ["raylet", "--node_id=1a", "--session_dir=/local/ray/session", "--labels={}", "--head"]
LOCK = "/local/ray/a lock"
PORTS = {
    "metrics_agent_port": 20005,
    "metrics_export_port": 20006,
    "dashboard_agent_listen_port": 20004,
    "runtime_env_agent_port": 20007,
}


class Ray:
    """Ray's modules: a raylet that registers at the third query; records started processes and published ports."""

    def __init__(self) -> None:
        self.started: list[list[str]] = []
        self.written: list[tuple[object, ...]] = []
        self.raylet_code: int | None = None
        self._answers: Iterator[str | RuntimeError] = iter([RuntimeError("not yet"), RuntimeError("not yet"), "node"])
        self.services = module("services", get_node=self._get_node, start_ray_process=self._start_ray_process)
        self.node = module("node", get_all_node_info_until_retrieved=None)
        self.raylet = module("_raylet", persist_port=lambda *words: self.written.append(words))
        self.store = module("internal_kv", _internal_kv_get=lambda key, namespace: key + namespace)

    def _get_node(self, gcs_address: str, node_id: str) -> str:
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _start_ray_process(self, command: list[str], process_type: str) -> object:
        self.started.append(command)
        return SimpleNamespace(process=SimpleNamespace(poll=lambda: self.raylet_code))

    def start(self, timeout_s: float = 10, **changes: Any) -> fast_start.ProcessStarter:
        return fast_start.ProcessStarter(self.services, SimpleNamespace(**{**PORTS, **changes}), timeout_s, LOCK)


def module(name: str, **names: object) -> Any:
    made = ModuleType(name)
    vars(made).update(names)
    return made


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    made = Ray()
    utils = module("utils", internal_kv_get_with_retry=lambda gcs, key, space, num_retries: f"{key}-{space}".encode())
    modules = {
        "ray": module("ray", _raylet=made.raylet),
        "ray._private": module("_private", services=made.services, node=made.node, utils=utils),
        "ray._private.ray_constants": module(
            "ray_constants", DASHBOARD_ADDRESS=b"dashboard", KV_NAMESPACE_SESSION="session"
        ),
        "ray.experimental": module("experimental", internal_kv=made.store),
    }
    for name, stand_in in modules.items():
        monkeypatch.setitem(sys.modules, name, stand_in)
    monkeypatch.setattr(fast_start, "_POLL_S", 0)
    monkeypatch.setenv(fast_start.LOCK_VARIABLE, LOCK)
    return made


@pytest.mark.parametrize(("asked", "port"), [("", None), ("0", None), ("1", 20009)])
@pytest.mark.parametrize("head", [True, False])
def test_the_client_server_starts_only_if_it_is_turned_on(
    ray: Ray, monkeypatch: pytest.MonkeyPatch, asked: str, port: int | None, head: bool
) -> None:
    monkeypatch.setenv("VERLJOB_RAY_CLIENT", asked)
    monkeypatch.setenv("VERLJOB_RAY_TIMEOUT_S", "180")
    monkeypatch.setenv("VERLJOB_RAY_HEAD_TEMP_DIR", "/local/ray")
    parameters = SimpleNamespace(ray_client_server_port=20009, dashboard_host="127.0.0.1", dashboard_port=8265)

    fast_start.before_start(parameters, head)

    assert parameters.ray_client_server_port == port


@pytest.mark.parametrize(
    ("version", "used"), [((2, 39), False), ((2, 40), True), ((2, 54), True), ((2, 60), True), ((2, 61), False)]
)
def test_the_patches_are_used_with_tested_versions_of_ray(version: tuple[int, int], used: bool) -> None:
    assert fast_start.supported(version) is used


@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize("lock", [LOCK, None])
def test_without_a_start_lock_ray_start_is_unchanged(
    ray: Ray, monkeypatch: pytest.MonkeyPatch, head: bool, lock: str | None
) -> None:
    monkeypatch.setenv("VERLJOB_RAY_TIMEOUT_S", "180")
    monkeypatch.setenv("VERLJOB_RAY_HEAD_TEMP_DIR", "/local/ray")
    if lock is None:
        monkeypatch.delenv(fast_start.LOCK_VARIABLE)
    before = [dict(vars(module)) for module in (ray.services, ray.node, ray.store)]

    fast_start.before_start(SimpleNamespace(dashboard_host="127.0.0.1", dashboard_port=8265), head)

    after = [dict(vars(module)) for module in (ray.services, ray.node, ray.store)]
    assert (after == before) is (lock is None)


def test_ray_start_waits_for_its_raylet_until_our_timeout(ray: Ray) -> None:
    assert ray.start().get_node("gcs", node_id="1a") == "node"


def test_the_wait_for_the_raylet_times_out(ray: Ray) -> None:
    with pytest.raises(RuntimeError, match="not yet"):
        ray.start(timeout_s=-1).get_node("gcs", node_id="1a")


def test_ray_start_does_not_wait_for_a_raylet_that_has_ended(ray: Ray) -> None:
    start = ray.start()
    start.start(RAYLET, "raylet")
    ray.raylet_code = -6

    with pytest.raises(fast_start.RayletEnded, match="ended with -6"):
        start.get_node("gcs", node_id="1a")


def test_the_ports_of_the_agents_are_published_for_the_raylet(ray: Ray) -> None:
    ray.start().start(RAYLET, "raylet")

    assert ray.written == [("/local/ray/session", "1a", name, port) for name, port in PORTS.items()]
    assert ray.started == [RAYLET]


@pytest.mark.parametrize("changes", [{"metrics_export_port": None}, {"runtime_env_agent_port": 0}])
def test_ports_that_the_agents_choose_are_not_published(ray: Ray, changes: dict[str, Any]) -> None:
    ray.start(**changes).start(RAYLET, "raylet")

    assert ray.written == []


def test_a_ray_that_reads_no_published_ports_gets_none(ray: Ray) -> None:
    del ray.raylet.persist_port
    ray.start().start(RAYLET, "raylet")

    assert ray.started == [RAYLET]


def test_helpers_that_a_cluster_does_not_need_are_delayed(ray: Ray) -> None:
    for process_type in ("dashboard", "monitor", "log_monitor", "gcs_server"):
        ray.start().start(["a"], process_type)

    later = [[*fast_start.delayed(number, LOCK), "a"] for number in (10, 10, 19)]
    assert ray.started == [*later, ["a"]]


AGENTS = ["--dashboard_agent_command=python3 agent.py", "--runtime_env_agent_command=python3 main.py"]


def test_the_agents_that_the_raylet_starts_are_delayed(ray: Ray) -> None:
    ray.start().start([*RAYLET, *AGENTS], "raylet")

    later = shlex.join(fast_start.delayed(19, LOCK))
    assert ray.started[0][len(RAYLET) :] == [
        f"--dashboard_agent_command={later} python3 agent.py",
        f"--runtime_env_agent_command={later} python3 main.py",
    ]


def test_agents_whose_ports_the_raylet_waits_for_only_get_a_niceness(ray: Ray) -> None:
    del ray.raylet.persist_port
    ray.start().start([*RAYLET, *AGENTS], "raylet")

    assert ray.started[0][len(RAYLET)] == "--dashboard_agent_command=nice --adjustment=19 python3 agent.py"


def test_the_dashboards_address_is_published_before_the_dashboard_runs(ray: Ray) -> None:
    fast_start.publish_dashboard("127.0.0.1:8265")

    assert ray.store._internal_kv_get(b"dashboard", namespace=b"n") == b"127.0.0.1:8265"
    assert ray.store._internal_kv_get(b"other", namespace=b"-n") == b"other-n"


def test_a_worker_does_not_wait_for_the_heads_raylet(ray: Ray) -> None:
    fast_start.publish_head("/local/ray")
    (head,) = ray.node.get_all_node_info_until_retrieved("gcs", timeout_per_retry=5, node_selectors=[])

    assert (head.temp_dir, head.session_dir) == ("/local/ray", "/local/ray/session_name-session")


def test_a_ray_that_does_not_wait_for_the_head_is_not_patched(ray: Ray) -> None:
    del ray.node.get_all_node_info_until_retrieved
    fast_start.publish_head("/local/ray")

    assert not hasattr(ray.node, "get_all_node_info_until_retrieved")
