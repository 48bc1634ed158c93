"""Cluster checks, and the table of all checks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from verl_node.checks import background, cluster, table
from verl_node.checks.cluster import Report
from verl_node.checks.result import Outcome

GIB = 1 << 30
FACTS = {"memory": 500 * GIB, "rails": ["mlx5_0:1", "mlx5_1:1"], "driver": "580.1", "models": ["NVIDIA H200"]}
OFFLOAD = {"actor_rollout_ref.ref.fsdp_config.param_offload": "True"}
QWEN = "Qwen/Qwen2-7B-Instruct"


def reports(**differing: object) -> list[Report]:
    """Reports of three nodes; n3 has these facts or this clock."""
    skew = differing.pop("skew_s", 0.0)
    assert isinstance(skew, float)
    equal = [Report(f"n{number}", [], dict(FACTS)) for number in (1, 2)]
    return [*equal, Report("n3", [], {**FACTS, **differing}, skew)]


def findings(found: list[Report], keys: dict[str, str] | None = None, model: str = "") -> list[tuple[str, str]]:
    return [(outcome.check, outcome.host) for outcome in cluster.compare(found, keys or {}, model)]


def test_equal_nodes_have_no_findings() -> None:
    assert findings(reports()) == []


@pytest.mark.parametrize(
    ("differing", "check"),
    [
        ({"skew_s": -42.0}, "clocks_agree"),
        ({"driver": "535.2"}, "drivers_agree"),
        ({"models": ["NVIDIA H100"]}, "gpus_agree"),
        ({"rails": ["mlx5_0:1"]}, "rails_agree"),
    ],
)
def test_node_that_differs_is_named(differing: dict[str, object], check: str) -> None:
    assert findings(reports(**differing)) == [(f"nodes.{check}", "n3")]


def test_only_the_number_of_rails_is_compared() -> None:
    assert findings(reports(rails=["mlx5_2:1", "mlx5_3:1"])) == []


@pytest.mark.parametrize(
    ("gib", "count", "model", "short"),
    [
        (186, 2, QWEN, False),  # the guides' 200 GB, for 7.6e9 parameters on two nodes
        (150, 2, QWEN, True),
        (1500, 2, "Qwen/Qwen2.5-72B-Instruct", True),
        (1500, 4, "Qwen/Qwen2.5-72B-Instruct", False),
        (1, 2, "/models/of-my-own", False),  # unknown size
    ],
)
def test_memory_for_offloading_scales_with_the_model(gib: int, count: int, model: str, short: bool) -> None:
    found = [Report(f"n{number}", [], {"memory": gib * GIB}) for number in range(count)]

    assert bool(findings(found, OFFLOAD, model)) is short
    assert findings(found, {}, model) == []


def test_rollout_share_must_be_free_on_every_gpu() -> None:
    keys = {"actor_rollout_ref.rollout.gpu_memory_utilization": "0.9"}
    found = reports(gpu_total=140 * GIB, gpu_free=100 * GIB)

    (outcome,) = cluster.compare(found, keys, "")
    assert (outcome.host, outcome.severity) == ("n3", "fail")
    assert "gpu_memory_utilization=0.69" in outcome.fix
    assert findings(reports(gpu_total=140 * GIB, gpu_free=139 * GIB), keys) == []


def test_actor_and_reference_must_be_sharded_alike() -> None:
    keys = {"actor_rollout_ref.actor.strategy": "fsdp2", "actor_rollout_ref.ref.strategy": "fsdp"}
    (outcome,) = cluster.compare(reports(), keys, "")
    assert outcome.fix == "Set actor_rollout_ref.ref.strategy=fsdp2."
    assert findings(reports(), {**keys, "actor_rollout_ref.ref.strategy": "fsdp2"}) == []


def report(host: str, **severities: str) -> Report:
    return Report(
        host, [Outcome(name, host, severity, f"Seen {name}.", "", "Do it.") for name, severity in severities.items()]
    )


def test_table_has_rows_of_checks_columns_of_nodes_and_lines_of_findings() -> None:
    found = [report("n1", a="ok", b="warn"), report("n2", a="permission")]

    lines = table.text(found, []).splitlines()

    assert [line.split() for line in lines[:3]] == [["n1", "n2"], ["a", "ok", "FAIL"], ["b", "warn", "-"]]
    assert lines[3:] == ["n1 warn b: Seen b. — Do it.", "n2 FAIL a: Seen a. — Do it."]
    record = json.loads(table.record(found, []))
    assert (record["bad"], record["exclude"]) == (["n2"], "--exclude=n2")
    assert record["nodes"][0]["outcomes"][1]["severity"] == "warn"


def test_healthy_nodes_of_a_large_job_share_a_column() -> None:
    found = [report(f"n{number}", a="fail" if number == 41 else "ok") for number in range(64)]

    first, second, *_ = table.text(found, []).splitlines()

    assert first.split() == ["n41", "63", "others"]
    assert second.split() == ["a", "FAIL", "ok"]


def test_host_check_results_are_read_from_the_file(tmp_path: Path) -> None:
    assert background.host_outcomes(tmp_path, "n1") == []
    (tmp_path / background.HOST_FILE).write_text("host.gpus_are_idle\tfail\tHeld.\tnone\tEnd it.\nhalf a line\n")

    assert background.host_outcomes(tmp_path, "n1") == [
        Outcome("host.gpus_are_idle", "n1", "fail", "Held.", "none", "End it.")
    ]
