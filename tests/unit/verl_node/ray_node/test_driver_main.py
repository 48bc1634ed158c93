"""The driver joins the cluster once the raylet of its node has registered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from verl_node.ray_node import driver_main


def test_the_driver_retries_until_its_raylet_has_registered(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(driver_main, "_POLL_S", 0)
    results = [ConnectionError("not yet"), ConnectionError("not yet"), None]
    calls: list[dict[str, Any]] = []

    def init(**arguments: Any) -> None:
        calls.append(arguments)
        if error := results.pop(0):
            raise error

    driver_main._connect(SimpleNamespace(init=init), "10.0.0.1:6379", "10.0.0.1")

    assert [(call["address"], call["_node_ip_address"]) for call in calls] == [("10.0.0.1:6379", "10.0.0.1")] * 3
    assert capfd.readouterr().err.count("ray.init failed, trying again: ConnectionError('not yet')") == 2
