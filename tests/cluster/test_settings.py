"""Wrong settings end the job at once with 64 and a message; launch.sh finds its files for every way to submit."""

from __future__ import annotations

import pytest

from slurm.testbed import Cluster
from tests.support.cluster.launches import HOME, WORK, Launch, submit

SOON_S = 60
INPUTS_S = 10  # until a job without its inputs ends
SMALL = ("--cpus-per-task=1", "--mem=1G")
"""The jobs of this file are submitted together and run side by side."""
ABSENT = "registry:5000/verl.cpu:absent"
SUBMISSIONS = {
    "from the checkout": (HOME, "slurm/launch.sh", ()),
    "by an absolute path": (WORK, f"{HOME}/slurm/launch.sh", ()),
    "by a relative path": (WORK, "../verljob/slurm/launch.sh", ()),
    "by a symlink": (WORK, "link.sh", ()),
    "from a path with a space": ("/home/submitter/with space", "slurm/launch.sh", ()),
    "with --chdir": (HOME, "slurm/launch.sh", ("--chdir=/home/submitter/work",)),
    "with --export=NONE": (HOME, "slurm/launch.sh", ("--export=NONE",)),
}


@pytest.fixture(scope="module")
def launches(cluster: Cluster, environment: dict[str, str]) -> dict[str, Launch]:
    """The jobs of all tests that end before a container starts, or with a missing image, by name."""
    login = cluster.host("login")
    login.run(["ln", "-sfn", f"{HOME}/slurm/launch.sh", f"{WORK}/link.sh"], user="submitter")
    login.run(["mkdir", "-p", "/home/submitter/with space"], user="submitter")
    login.run(["cp", "-r", f"{HOME}/slurm", "/home/submitter/with space/"], user="submitter")
    login.run(["cp", "-r", f"{HOME}/slurm", "/opt/unseen"])
    absent = {**environment, "VERLJOB_IMAGE": ABSENT}
    image = {"VERLJOB_IMAGE": environment["VERLJOB_IMAGE"]}
    gpus = ("--nodes=2", "--gpus-per-node=1", *SMALL)
    submitted = {
        "missing image": submit(cluster, ["demo_cpu"], flags=gpus, environment=absent),
        "unknown recipe": submit(cluster, ["gsm9k"], flags=gpus, environment=environment),
        "no GPUs": submit(cluster, ["gsm8k_ppo"], flags=["--nodes=1", *SMALL], environment=environment),
        "unseen": submit(cluster, ["demo_cpu"], flags=gpus, script="/opt/unseen/launch.sh", environment=image),
    }
    command = f"sbatch --parsable --nodes=1 {' '.join(SMALL)} < slurm/launch.sh"
    number = int(login.run(["bash", "-c", command], user="submitter", folder=HOME).stdout)
    submitted["standard input"] = Launch(cluster, number, HOME)
    for name, (folder, script, flags) in SUBMISSIONS.items():
        submitted[name] = submit(cluster, ["no_such"], flags=[*SMALL, *flags], folder=folder, script=script)
    return submitted


def ended(launch: Launch) -> tuple[int, str]:
    job = launch.wait(SOON_S)
    return job.code, launch.output().strip().splitlines()[-1]


def test_an_unknown_recipe_ends_with_64_and_the_list(launches: dict[str, Launch]) -> None:
    code, last = ended(launches["unknown recipe"])

    assert code == 64
    for word in ("gsm9k", "gsm8k_ppo", "gsm8k_grpo", "demo_cpu", "cluster"):
        assert word in last


def test_an_allocation_without_gpus_names_the_flag(launches: dict[str, Launch]) -> None:
    code, last = ended(launches["no GPUs"])

    assert code == 64
    assert "--gpus-per-node" in last


def test_a_missing_image_ends_with_66_with_node_reference_and_fixes(launches: dict[str, Launch]) -> None:
    code, last = ended(launches["missing image"])

    assert code == 66
    for text in ("node n", ABSENT, "push it to a registry", "shared folder", "docker load"):
        assert text in last


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_launch_finds_its_files(launches: dict[str, Launch], name: str) -> None:
    code, last = ended(launches[name])

    assert code == 64
    assert "no recipe 'no_such'" in last


def test_launch_finds_its_files_from_standard_input(launches: dict[str, Launch]) -> None:
    code, last = ended(launches["standard input"])

    assert code == 64
    assert "--gpus-per-node" in last


def test_a_checkout_that_is_missing_on_the_nodes_is_an_error(launches: dict[str, Launch]) -> None:
    code, last = ended(launches["unseen"])

    assert code == 64
    assert "export VERLJOB_HOME" in last


def test_a_model_that_no_node_can_have_ends_with_66_before_the_cluster_forms(
    cluster: Cluster, environment: dict[str, str]
) -> None:
    launch = submit(cluster, ["demo_cpu"], environment={**environment, "VERLJOB_MODEL": "verljob/absent"})
    job = launch.wait(90)
    events = launch.rows("events.jsonl")

    assert job.code == 66, launch.end_of_output()
    assert "This node has no model verljob/absent in HF_HOME" in launch.result()["cause"]
    assert "./run stage" in launch.result()["fix"]
    assert "cluster" not in {event["phase"] for event in events}
    assert events[-1]["time"] - events[0]["time"] < 2 * INPUTS_S


def test_an_override_that_contradicts_the_allocation_ends_with_65(
    cluster: Cluster, environment: dict[str, str]
) -> None:
    launch = submit(cluster, ["demo_cpu", "trainer.nnodes=3"], environment=environment)
    job = launch.wait(90)

    assert job.code == 65, launch.end_of_output()
    assert "trainer.nnodes" in launch.result()["cause"]
