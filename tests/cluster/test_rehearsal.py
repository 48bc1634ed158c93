"""The rehearsal cluster has the nodes, accounts, engines and devices that the other tests rely on."""

from __future__ import annotations

import pytest

from slurm.errors import ClusterNotReady, CommandFailed
from slurm.testbed import Cluster

NODES = ["n1", "n2"]


def sh(cluster: Cluster, host: str, line: str, user: str = "submitter") -> str:
    return cluster.host(host).run(["bash", "-c", line], user=user).stdout


def test_srun_runs_on_every_node_as_the_account(testbed: Cluster) -> None:
    lines = sh(
        testbed, "login", 'srun --nodes=2 bash -c "echo \\$SLURMD_NODENAME \\$(id -un) \\$(id -Gn)"'
    ).splitlines()

    assert sorted(lines) == [f"{node} submitter submitter docker project" for node in NODES]


def test_a_job_gets_the_requested_stand_in_gpus(testbed: Cluster) -> None:
    command = "srun --nodes=1 --gpus-per-node=standin:3 printenv SLURM_GPUS_ON_NODE SLURM_STEP_GPUS"

    assert sh(testbed, "login", command).split() == ["3", "0,1,2"]


@pytest.mark.parametrize("node", NODES)
def test_a_node_has_eight_readable_stand_in_gpus(testbed: Cluster, node: str) -> None:
    readable = sh(testbed, node, "for gpu in /dev/standin-gpu?; do cat $gpu && echo $gpu; done", user="root")

    assert readable.split() == [f"/dev/standin-gpu{index}" for index in range(8)]


@pytest.mark.parametrize("node", NODES)
def test_a_node_has_no_python(testbed: Cluster, node: str) -> None:
    interpreters = sh(testbed, node, "find / -xdev -type f -name 'python*' -perm /111 -print", user="root")

    assert interpreters == ""


@pytest.mark.parametrize("user", ["submitter", "neighbour"])
@pytest.mark.parametrize("node", NODES)
def test_both_accounts_use_the_engine_of_the_node(testbed: Cluster, node: str, user: str) -> None:
    assert sh(testbed, node, "docker info --format '{{.Driver}} {{.Name}}'", user).split() == ["overlay2", node]


def test_the_login_node_has_no_docker(testbed: Cluster) -> None:
    with pytest.raises(CommandFailed):
        sh(testbed, "login", "command -v docker dockerd")


def test_a_killed_engine_restarts(testbed: Cluster) -> None:
    sh(testbed, "n2", "pkill -KILL -x dockerd", user="root")

    testbed.wait_ready(timeout_s=60)


def test_home_is_one_folder_on_all_hosts(testbed: Cluster) -> None:
    sh(testbed, "n1", "echo written on n1 > ~/where")

    assert {sh(testbed, host, "cat ~/where") for host in ["login", *NODES]} == {"written on n1\n"}


def test_the_second_account_cannot_list_the_home_of_the_first(testbed: Cluster) -> None:
    with pytest.raises(CommandFailed):
        sh(testbed, "login", "ls /home/submitter", user="neighbour")


def test_every_node_has_pulled_the_pushed_image(testbed: Cluster, environment: dict[str, str]) -> None:
    images = [
        sh(testbed, node, "docker images --no-trunc --format '{{.Repository}}:{{.Tag}} {{.ID}}'") for node in NODES
    ]

    assert images[0] == images[1]
    assert environment["VERLJOB_IMAGE"] in images[0]


def test_a_jobs_exit_code_and_output_are_returned(cluster: Cluster) -> None:
    job = cluster.sbatch(["--wrap", "echo output of the job; exit 7"])

    ended = cluster.wait_job(job, timeout_s=60)

    assert (ended.state, ended.code, ended.nodes) == ("FAILED", 7, "n1")
    assert cluster.read(ended.output) == "output of the job\n"


def test_an_unknown_host_is_an_error_with_its_name(testbed: Cluster) -> None:
    with pytest.raises(ClusterNotReady, match="has no 'n3'"):
        testbed.host("n3")
