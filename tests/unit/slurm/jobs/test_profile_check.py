"""`invoke profile`: the flags of a job with their reasons, and what its site's sbatch would refuse."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from slurm.errors import BadProfile
from slurm.jobs import profile
from slurm.jobs.profile import Profile
from slurm.jobs.profile_check import findings
from slurm.jobs.profile_flags import Request, flags
from slurm.jobs.profile_report import text
from tests.support.paths import CHECKOUT

TODAY = date(2026, 11, 26)


def passed(site: Profile, *words: str, **environ: str) -> list[str]:
    return [flag.text for flag in flags(site, Request(words, environ), TODAY)]


def found(name: str, *words: str, **environ: str) -> str:
    return "\n".join(findings(profile.read(name), Request(words, environ), TODAY))


def test_flags_of_the_profile_are_completed_by_the_users_own() -> None:
    site = profile.read("lumi")

    assert passed(site) == [
        "--account=<account>",
        "--partition=standard-g",
        "--cpus-per-task=56",
        "--mem=480G",
        "--gpus-per-node=8",
        "--nodes=2",
    ]
    own = passed(
        site,
        "-A",
        "project_1",
        "--gpus-per-node=4",
        "-N4",
        "--partition",
        "dev-g",
        "--requeue",
        "slurm/launch.sh",
        "-x",
    )
    assert own == [
        "--cpus-per-task=56",
        "--mem=480G",
        "--account=project_1",
        "--gpus-per-node=4",
        "--nodes=4",
        "--partition=dev-g",
        "--requeue",
    ]


def test_a_flag_without_a_value_is_left_out_where_the_site_has_a_default() -> None:
    assert passed(profile.read("alps"))[0] == "--partition=normal"


def test_variables_of_sbatch_count_as_flags_and_lose_to_them() -> None:
    site = profile.read("lumi")

    assert "--account=p2" in passed(site, SBATCH_ACCOUNT="p2")
    assert "--account=p3" in passed(site, "--account=p3", SBATCH_ACCOUNT="p2")


def test_a_bad_node_is_excluded_for_ninety_days(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'site = "vista"\n[bad_nodes.c1]\nreason = "slow"\ndate = 2026-09-01\n'
        '[bad_nodes.c2]\nreason = "x"\ndate = 2026-08-01\n'
    )
    site = profile.read(str(path))

    assert "--exclude=c1" in passed(site)
    assert "--nodelist has c2: x" in "\n".join(findings(site, Request(["-w", "c2,c3"], {}), TODAY))


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("lumi", [], "--account=<account> has no value: give --account=… to sbatch, or write a file"),
        ("lumi", [], 'with the lines site = "lumi", [values], account = "…".'),
        ("lumi", ["-A", "x", "--nodes=5", "-p", "small-g"], "=small-g has at most 4 nodes"),
        ("lumi", ["-A", "x", "-t", "3-0", "-N", "4"], "--time=3-0: 4 nodes with"),
        ("frontier", ["-A", "x", "-t", "3:00:00", "-N", "91"], "91 nodes with --partition=batch have at most 2:00:00"),
        ("frontier", ["-A", "x"], "--time=<time> has no value"),
        ("vista", ["-t", "1:00", "--mem=10G"], "--mem=10G is refused by the site's sbatch"),
        ("vista", ["-t", "1:00", "--gres", "gpu:1"], "--gres=gpu:1 is refused"),
        ("vista", ["-t", "1:00", "--gpus=1"], "--gpus=1: Slurm does not count GPUs here"),
        ("alps", ["--mem=0"], "--mem=0 is refused"),
        ("leonardo", ["-A", "x", "--gpus-per-node=4"], "--gpus-per-node=4: GPUs are requested by --gres=gpu:4 here"),
        ("juwels", ["-A", "x", "--gres=gpu:a100:4"], "--gres=gpu:a100:4: GPUs are requested by --gres=gpu:4 here"),
        ("perlmutter", ["--gpus-per-node=8"], "--gpus-per-node=8: a node has 4 GPUs"),
    ],
)
def test_a_request_that_sbatch_refuses_is_explained(name: str, words: list[str], message: str) -> None:
    assert message in found(name, *words)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lumi", ["-A", "x", "--time=2-0", "--nodes=1024"]),
        ("frontier", ["-A", "x", "-t", "6:00:00", "-N", "92"]),
        ("vista", ["-t", "2-00:00:00", "-N64"]),
        ("alps", ["--mem=100G"]),
        ("leonardo", ["-A", "x", "--gres=tmpfs:10g"]),
        ("rehearsal", ["--gpus-per-node=1"]),
        ("aws-parallelcluster", []),
    ],
)
def test_a_request_that_fits_has_no_finding(name: str, words: list[str]) -> None:
    assert found(name, *words) == ""


def test_a_forbidden_variable_of_sbatch_is_named() -> None:
    assert "and unset SBATCH_MEM_PER_NODE" in found("vista", "-t", "1", SBATCH_MEM_PER_NODE="10G")


def test_an_obsolete_variable_is_found_in_the_environment_and_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[environment.RDMAV_FORK_SAFE]\nvalue = "1"\n')

    assert "FI_PROVIDER=efa, exported: only for aws-ofi-nccl 1.5" in found("docker", FI_PROVIDER="efa")
    assert "RDMAV_FORK_SAFE=1, in environment.RDMAV_FORK_SAFE: do not use" in found(str(path))


def test_the_type_of_the_gpus_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "typed.toml"
    path.write_text('[gpus]\nflag = "--gres=gpu:{type}:{n}"\nper_node = 8\n')

    assert "--gres=gpu:<type>:8 has no value" in found(str(path))
    path.write_text('[gpus]\nflag = "--gres=gpu:{type}:{n}"\nper_node = 8\ntype = "h200"\n')
    assert passed(profile.read(str(path)))[0] == "--gres=gpu:h200:8"
    assert "GPUs are requested by --gres=gpu:h200:8 here" in found(str(path), "--gres=gpu:8")


@pytest.mark.parametrize("nodes", ["many", "1e3", "", "99999999"])
def test_a_number_of_nodes_that_is_none_is_refused(nodes: str) -> None:
    with pytest.raises(BadProfile, match="is not a number of nodes"):
        found("lumi", f"--nodes={nodes}")


def test_the_report_has_each_setting_with_its_source_and_condition() -> None:
    shown = text(profile.read("frontier"), "named", Request(["-N1", "-A", "a b"], {"NCCL_CROSS_NIC": "0"}), TODAY)

    assert "NCCL_NET=OFI" in shown
    assert "not set, as nodes > 1 and plugin does not hold; environment.NCCL_NET: [" in shown
    assert "your export wins, 0; environment.NCCL_CROSS_NIC: [" in shown
    assert "1 nodes: at most --time=2:00:00 with --partition=batch: [" in shown
    assert "pytorch_frontier.rst (2026-07-22)" in shown
    assert shown.splitlines()[-1].endswith("--nodes=1 '--account=a b' slurm/launch.sh RECIPE")


def test_a_source_of_more_than_a_year_is_noted() -> None:
    site = profile.read("lumi")

    assert "older than a year: environment, limits, recognised, sbatch, values" in text(
        site, "named", Request([], {}), TODAY
    )
    assert "older than a year" not in text(site, "named", Request([], {}), date(2024, 11, 1))


def test_the_task_exits_with_64_if_sbatch_would_refuse() -> None:
    argv = [sys.executable, "-m", "invoke", "profile", "vista", "--check", "--", "--time=1:00"]
    good = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    bad = subprocess.run([*argv, "--mem=1G"], cwd=CHECKOUT, capture_output=True, text=True, check=False)

    assert (good.returncode, bad.returncode) == (0, 64), good.stderr + bad.stderr
    assert good.stdout.endswith("\nthe profile knows nothing that sbatch would refuse\n")
    assert "--mem=1G is refused" in bad.stdout.splitlines()[-1]
