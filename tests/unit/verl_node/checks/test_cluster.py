"""What only all nodes together tell, and how it is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from verl_node.checks import cluster, table
from verl_node.checks.cluster import Report
from verl_node.checks.node import host
from verl_node.checks.result import Outcome

GIB = 1 << 30
FACTS = {"memory": 500 * GIB, "rails": ["mlx5_0:1", "mlx5_1:1"], "driver": "580.1", "models": ["NVIDIA H200"]}
OFFLOAD = {"actor_rollout_ref.ref.fsdp_config.param_offload": "True"}
QWEN = "Qwen/Qwen2-7B-Instruct"


def reports(**odd: object) -> list[Report]:
    """Three nodes, of which n3 has these facts or this clock."""
    skew = odd.pop("skew_s", 0.0)
    assert isinstance(skew, float)
    equal = [Report(f"n{number}", [], dict(FACTS)) for number in (1, 2)]
    return [*equal, Report("n3", [], {**FACTS, **odd}, skew)]


def asked(found: list[Report], keys: dict[str, str] | None = None, model: str = "") -> list[tuple[str, str]]:
    return [(outcome.check, outcome.host) for outcome in cluster.ask(found, keys or {}, model)]


def test_equal_nodes_have_nothing_between_them() -> None:
    assert asked(reports()) == []


@pytest.mark.parametrize(
    ("odd", "check"),
    [
        ({"skew_s": -42.0}, "clocks_agree"),
        ({"driver": "535.2"}, "drivers_agree"),
        ({"models": ["NVIDIA H100"]}, "gpus_agree"),
        ({"rails": ["mlx5_0:1"]}, "rails_agree"),
    ],
)
def test_the_odd_node_is_named(odd: dict[str, object], check: str) -> None:
    assert asked(reports(**odd)) == [(f"nodes.{check}", "n3")]


def test_other_names_of_as_many_rails_are_no_difference() -> None:
    assert asked(reports(rails=["mlx5_2:1", "mlx5_3:1"])) == []


@pytest.mark.parametrize(
    ("gib", "count", "model", "short"),
    [
        (186, 2, QWEN, False),  # the guides' 200 GB, for 7.6e9 parameters on two nodes
        (150, 2, QWEN, True),
        (1500, 2, "Qwen/Qwen2.5-72B-Instruct", True),
        (1500, 4, "Qwen/Qwen2.5-72B-Instruct", False),
        (1, 2, "/models/of-my-own", False),  # nobody knows its size
    ],
)
def test_offloading_wants_memory_by_the_models_size(gib: int, count: int, model: str, short: bool) -> None:
    found = [Report(f"n{number}", [], {"memory": gib * GIB}) for number in range(count)]

    assert bool(asked(found, OFFLOAD, model)) is short
    assert asked(found, {}, model) == []


def test_what_the_rollout_wants_has_to_be_free_on_every_gpu() -> None:
    keys = {"actor_rollout_ref.rollout.gpu_memory_utilization": "0.9"}
    found = reports(gpu_total=140 * GIB, gpu_free=100 * GIB)

    (outcome,) = cluster.ask(found, keys, "")
    assert (outcome.host, outcome.severity) == ("n3", "fail")
    assert "gpu_memory_utilization=0.69" in outcome.fix
    assert asked(reports(gpu_total=140 * GIB, gpu_free=139 * GIB), keys) == []


def test_actor_and_reference_are_sharded_alike() -> None:
    keys = {"actor_rollout_ref.actor.strategy": "fsdp2", "actor_rollout_ref.ref.strategy": "fsdp"}
    (outcome,) = cluster.ask(reports(), keys, "")
    assert outcome.fix == "Say actor_rollout_ref.ref.strategy=fsdp2."
    assert asked(reports(), {**keys, "actor_rollout_ref.ref.strategy": "fsdp2"}) == []


def seen(host: str, **severities: str) -> Report:
    return Report(host, [Outcome(name, host, one, f"Seen {name}.", "", "Do it.") for name, one in severities.items()])


def test_a_table_has_a_row_a_check_and_a_column_a_node_and_a_line_a_finding() -> None:
    found = [seen("n1", a="ok", b="warn"), seen("n2", a="permission")]

    lines = table.text(found, []).splitlines()

    assert [line.split() for line in lines[:3]] == [["n1", "n2"], ["a", "ok", "FAIL"], ["b", "warn", "-"]]
    assert lines[3:] == ["n1 warn b: Seen b. — Do it.", "n2 FAIL a: Seen a. — Do it."]
    told = json.loads(table.record(found, []))
    assert (told["bad"], told["exclude"]) == (["n2"], "--exclude=n2")
    assert told["nodes"][0]["outcomes"][1]["severity"] == "warn"


def test_of_many_nodes_those_that_are_well_share_a_column() -> None:
    found = [seen(f"n{number}", a="fail" if number == 41 else "ok") for number in range(64)]

    first, second, *_ = table.text(found, []).splitlines()

    assert first.split() == ["n41", "63", "others"]
    assert second.split() == ["a", "FAIL", "ok"]


def test_what_the_host_saw_is_read_from_its_lines(tmp_path: Path) -> None:
    assert host.read(tmp_path, "n1") == []
    (tmp_path / host.FILE).write_text("host.gpus_are_idle\tfail\tHeld.\tnone\tEnd it.\nhalf a line\n")

    assert host.read(tmp_path, "n1") == [Outcome("host.gpus_are_idle", "n1", "fail", "Held.", "none", "End it.")]
