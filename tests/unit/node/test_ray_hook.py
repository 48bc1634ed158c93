"""What `ray start` is made to do inside, with a stand-in for the module of Ray that is changed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import pytest
from verl_node import ray_hook


class Unreachable(Exception):
    """Ray's RpcError."""


class Gcs:
    """Answers in turn; an exception is raised. ``asked`` counts the questions."""

    def __init__(self, *answers: object) -> None:
        self._answers = iter(answers)
        self.asked = 0

    def get_all_node_info(self, timeout: float, node_selectors: list[str]) -> object:
        self.asked += 1
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Ray's services, whose node registers at the third question."""
    module = ModuleType("services")
    answers: Iterator[str | RuntimeError] = iter([RuntimeError("not yet"), RuntimeError("not yet"), "node"])

    def get_node(gcs_address: str, node_id: str) -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    module.get_node = get_node  # type: ignore[attr-defined]
    module.start_ray_process = lambda command, process_type: command  # type: ignore[attr-defined]
    module.ray_constants = SimpleNamespace(DASHBOARD_ADDRESS=b"dashboard")  # type: ignore[attr-defined]
    private = ModuleType("ray._private")
    private.services = module  # type: ignore[attr-defined]
    module.node = private.node = ModuleType("node")  # type: ignore[attr-defined]
    exceptions = ModuleType("ray.exceptions")
    exceptions.RpcError = Unreachable  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray.exceptions", exceptions)
    store = ModuleType("ray.experimental.internal_kv")
    store._internal_kv_get = lambda key, namespace: key + namespace  # type: ignore[attr-defined]
    experimental = ModuleType("ray.experimental")
    experimental.internal_kv = store  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray.experimental", experimental)
    module.store = store  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray._private", private)
    monkeypatch.setattr(ray_hook, "_POLL_S", 0)
    return module


@pytest.mark.parametrize(("asked", "port"), [("", None), ("0", None), ("1", 20009)])
def test_the_client_server_starts_only_where_it_is_asked_for(
    services: ModuleType, monkeypatch: pytest.MonkeyPatch, asked: str, port: int | None
) -> None:
    monkeypatch.setenv("VERLJOB_RAY_CLIENT", asked)
    monkeypatch.setenv("VERLJOB_RAY_TIMEOUT_S", "180")
    parameters = SimpleNamespace(ray_client_server_port=20009, dashboard_host="127.0.0.1", dashboard_port=8265)

    ray_hook.before_start(parameters, True)

    assert parameters.ray_client_server_port == port


def test_ray_start_waits_for_its_raylet_as_long_as_it_is_told(services: ModuleType) -> None:
    ray_hook.wait_for_the_raylet(10)
    assert services.get_node("gcs", node_id="1") == "node"


def test_it_gives_up_when_that_time_is_over(services: ModuleType) -> None:
    ray_hook.wait_for_the_raylet(-1)
    with pytest.raises(RuntimeError, match="not yet"):
        services.get_node("gcs", node_id="1")


def test_nothing_that_the_cluster_waits_for_stands_behind_the_dashboard(services: ModuleType) -> None:
    ray_hook.start_the_raylet_first("127.0.0.1:8265")

    assert services.store._internal_kv_get(b"dashboard", namespace=b"n") == b"127.0.0.1:8265"
    assert services.store._internal_kv_get(b"other", namespace=b"-n") == b"other-n"
    assert services.start_ray_process(["a"], "raylet") == ["a"]
    for process_type in ("dashboard", "monitor", "log_monitor"):
        assert services.start_ray_process(["a"], process_type) == ["nice", "--adjustment=10", "a"]


@pytest.mark.parametrize(
    ("answers", "questions"), [([{}, {}, {"1": "head"}], 3), ([{}, Unreachable("no GCS"), {"1": "head"}], 2)]
)
def test_a_worker_looks_often_for_the_head_before_ray_looks_itself(
    services: ModuleType, answers: list[object], questions: int
) -> None:
    gcs = Gcs(*answers)
    services.node.get_all_node_info_until_retrieved = lambda gcs, **named: (gcs.asked, named)

    ray_hook.look_often_for_the_head(10)
    asked, named = services.node.get_all_node_info_until_retrieved(gcs, timeout_per_retry=5, node_selectors=["head"])

    assert asked == questions
    assert named == {"timeout_per_retry": 5, "node_selectors": ["head"]}


def test_a_worker_of_a_ray_that_does_not_wait_for_the_head_is_left_alone(services: ModuleType) -> None:
    ray_hook.look_often_for_the_head(10)

    assert not hasattr(services.node, "get_all_node_info_until_retrieved")
