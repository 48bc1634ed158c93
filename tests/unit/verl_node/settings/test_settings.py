from __future__ import annotations

import time
from pathlib import Path

import pytest
from verl_node.errors import BadSettings
from verl_node.settings.allocation import Allocation
from verl_node.settings.settings import Settings
from verl_node.supervision.hang import HangPolicy

JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NNODES": "2", "SLURM_NODEID": "1"}


def test_the_node_finds_its_name_and_number_in_the_allocation() -> None:
    found = Allocation.from_variables({**JOB, "VERLJOB_NODELIST_HOSTS": "n1,n2"})

    assert (found.hosts, found.nodes, found.node_id, found.host) == (("n1", "n2"), 2, 1, "n2")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"VERLJOB_NODELIST_HOSTS": "n1,n3"}, "but scontrol says n1,n3"),
        ({"SLURM_NNODES": "3"}, "names 2 hosts, but SLURM_NNODES is 3"),
        ({"SLURM_NODEID": "2"}, "SLURM_NODEID is 2, but SLURM_NNODES is 2"),
        ({"SLURMD_NODENAME": "n1"}, "this is n1, but node 1 of SLURM_JOB_NODELIST is n2"),
        ({"SLURM_NNODES": "two"}, "SLURM_NNODES is 'two', which is not a whole number"),
        ({"SLURM_GPUS_PER_NODE": "mi300x:eight"}, "neither a number nor a type and a number"),
        ({"SLURM_GPUS_ON_NODE": "4", "SLURM_GPUS_PER_NODE": "mi300x:8"}, "did not get every GPU of its job"),
    ],
)
def test_variables_that_contradict_each_other_are_named(changes: dict[str, str], words: str) -> None:
    with pytest.raises(BadSettings, match=words):
        Allocation.from_variables({**JOB, **changes})


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({}, None),
        ({"SLURM_GPUS_ON_NODE": "8"}, 8),
        ({"SLURM_GPUS_PER_NODE": "8"}, 8),
        ({"SLURM_GPUS_PER_NODE": "mi300x:8"}, 8),
        ({"SLURM_GPUS_PER_NODE": "a100:4,h100:4"}, 8),
        ({"SLURM_GPUS_ON_NODE": "8", "SLURM_GPUS_PER_NODE": "mi300x:8"}, 8),
    ],
)
def test_gpus_are_counted_with_and_without_a_type(variables: dict[str, str], gpus: int | None) -> None:
    assert Allocation.from_variables({**JOB, **variables}).gpus == gpus


def test_without_slurm_the_node_is_the_head_of_one() -> None:
    settings = Settings.from_env({})

    assert (settings.standalone, settings.joins, settings.allocation.nodes) == (True, False, 1)
    assert (settings.recipe, settings.token, settings.lease) == ("cluster", b"", None)


def test_a_token_is_read_from_its_file_and_an_empty_one_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("abc\n")
    assert Settings.from_env({"VERLJOB_TOKEN_FILE": str(token)}).token == b"abc"

    token.write_text("\n")
    with pytest.raises(BadSettings, match="is empty"):
        Settings.from_env({"VERLJOB_TOKEN_FILE": str(token)})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("VERLJOB_HEAD_PORTS", "6379,8265", "not three different ports"),
        ("VERLJOB_HEAD_PORTS", "6379,6379,8265", "not three different ports"),
        ("VERLJOB_PORT_BLOCK", "20000", "not first-last"),
        ("VERLJOB_RUN_DIR", "runs/1", "not an absolute path"),
        ("VERLJOB_JOIN_TIMEOUT_S", "10m", "not a whole number"),
        ("VERLJOB_SILENCE_S", "7", "VERLJOB_SILENCE_S is 7"),
        ("VERLJOB_STALL_S", "0", "VERLJOB_STALL_S is 0"),
        ("VERLJOB_HANG", "kill", "VERLJOB_HANG is 'kill'"),
        ("VERLJOB_TOKEN_FILE", "/nowhere/token", "cannot be read"),
        ("VERLJOB_PLUGIN_VARIABLES", "LD_PRELOAD", "no variable of NCCL or libfabric"),
    ],
)
def test_an_invalid_setting_is_named(name: str, value: str, words: str) -> None:
    with pytest.raises(BadSettings, match=words) as caught:
        Settings.from_env({name: value})

    assert value in caught.value.cause


def test_join_reads_the_head_from_its_flag_and_is_refused_in_a_job_of_slurm() -> None:
    joined = Settings.from_env({}).standalone_worker("[fd00::1]:6380", gpus=4)
    assert (joined.head_address, joined.head_ports.control, joined.allocation.gpus) == ("fd00::1", 6380, 4)

    with pytest.raises(BadSettings, match="this is job 7"):
        Settings.from_env(JOB).standalone_worker("n1:6380", gpus=None)
    with pytest.raises(BadSettings, match="is not HOST:PORT"):
        Settings.from_env({}).standalone_worker("n1", gpus=None)


def test_the_phases_of_node_sh_are_in_seconds() -> None:
    began_ms = int(time.time() * 1000) - 2500

    phases = Settings.from_env({"VERLJOB_IMAGE_MS": "1500", "VERLJOB_CONTAINER_BEGAN_MS": str(began_ms)}).host_phases

    assert phases["image"] == 1.5
    assert 2.5 <= phases["container"] < 10


def test_the_profiles_variables_for_a_plugin_are_separated_by_semicolons() -> None:
    variables = "NCCL_NET=AWS Libfabric;NCCL_PROTO=^LL128;FI_X=a=b"

    assert Settings.from_env({"VERLJOB_PLUGIN_VARIABLES": variables}).plugin_variables == {
        "NCCL_NET": "AWS Libfabric",
        "NCCL_PROTO": "^LL128",
        "FI_X": "a=b",
    }
    assert Settings.from_env({}).plugin_variables == {}


def test_without_node_sh_there_are_no_host_phases() -> None:
    assert Settings.from_env({}).host_phases == {}


def test_the_default_patience_is_a_minute_between_nodes_and_20_s_within_one() -> None:
    settings = Settings.from_env({})
    assert (settings.silence_s, settings.stall_s) == (60, 20)
    settings = Settings.from_env({"VERLJOB_SILENCE_S": "8", "VERLJOB_STALL_S": "9"})
    assert (settings.silence_s, settings.stall_s) == (8, 9)


def test_a_hang_is_reported_after_three_medians_and_a_minute_by_default() -> None:
    assert Settings.from_env({}).hang == HangPolicy("report", 3, 60, 0)
    told = {"VERLJOB_HANG": "end", "VERLJOB_HANG_FACTOR": "5", "VERLJOB_HANG_MARGIN_S": "600"}
    told["VERLJOB_FIRST_STEP_TIMEOUT_S"] = "3600"
    assert Settings.from_env(told).hang == HangPolicy("end", 5, 600, 3600)
