"""bench/gpu/virtual_nodes.py with a fake ip; the namespaces themselves need root."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from bench.gpu import virtual_nodes
from bench.gpu.gpu_job import Job
from bench.gpu.virtual_nodes import VirtualNode, environment


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the arguments of all calls of ip."""
    seen: list[str] = []
    monkeypatch.setattr(virtual_nodes, "ip", lambda *arguments: seen.append(" ".join(arguments)))
    return seen


def test_nodes_have_a_common_network_and_are_removed(calls: list[str]) -> None:
    with virtual_nodes.virtual_nodes(2) as nodes:
        assert [node.address for node in nodes] == ["198.18.77.1", "198.18.77.2"]
        for node in nodes:
            assert f"-n {node.name} address add {node.address}/24 dev eth0" in calls
            assert node.local.is_dir()
            assert all(f"{each.address} {each.name}" in (node.folder / "hosts").read_text() for each in nodes)
        assert len({node.local for node in nodes}) == 2

    added = [call for call in calls if call.startswith("netns add")]
    assert sorted(call.replace("delete", "add") for call in calls if call.startswith("netns delete")) == sorted(added)
    assert len(added) == 3
    assert not nodes[0].folder.parent.exists()


def test_nodes_are_removed_if_one_cannot_be_made(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: str) -> None:
        calls.append(" ".join(arguments))
        if "veth" in arguments:
            raise OSError("no veth")

    monkeypatch.setattr(virtual_nodes, "ip", fail)
    with pytest.raises(OSError, match="no veth"), virtual_nodes.virtual_nodes(2):
        pytest.fail("it was made")

    assert len([call for call in calls if call.startswith("netns delete")]) == 3


def test_the_command_runs_in_the_namespaces_of_its_node(tmp_path: Path) -> None:
    command = VirtualNode("verljob-bench-1", "198.18.77.2", tmp_path).command(["bash", "node.sh"])

    assert command[:2] == ["nsenter", "--net=/run/netns/verljob-bench-1"]
    assert command[-5:] == ["verljob-bench-1", f"{tmp_path}/hosts", f"{tmp_path}/cgroup", "bash", "node.sh"]


def test_each_node_has_its_task_of_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_nodes, "minor", {"GPU-a": 0, "GPU-b": 1}.get)
    nodes = [VirtualNode(f"n{number}", f"198.18.77.{number + 1}", tmp_path / str(number)) for number in range(2)]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    job = Job([], {})
    tasks = [environment(job, nodes, number, gpu) for number, gpu in enumerate(("GPU-a", "GPU-b"))]
    job.remove()

    assert [task["SLURM_NODEID"] for task in tasks] == ["0", "1"]
    assert [task["SLURM_STEP_GPUS"] for task in tasks] == ["0", "1"]
    assert [task["SLURMD_NODENAME"] for task in tasks] == ["n0", "n1"]
    assert {task["VERLJOB_NODELIST_HOSTS"] for task in tasks} == {"n0,n1"}
    assert {task["VERLJOB_HEAD_NODE"] for task in tasks} == {"n0"}
    assert len({task["VERLJOB_LOCAL"] for task in tasks}) == 2
    assert {task["VERLJOB_TOKEN"] for task in tasks} == {job.environment["VERLJOB_TOKEN"]}
