"""Profiles of sites: how a machine is recognised, which files are refused, which variables a job gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm.errors import BadProfile
from slurm.jobs import profile
from tests.support.shell import other_account

# Recorded or documented names of login nodes and clusters, and the profile of each.
MACHINES = [
    ("", "lumi-uan03.csc.fi", {}, "lumi"),
    ("", "login12.frontier.olcf.ornl.gov", {}, "frontier"),
    ("perlmutter", "login21", {"NERSC_HOST": "perlmutter"}, "perlmutter"),
    ("", "login05.leonardo.local", {}, "leonardo"),
    ("", "jwlogin22.juwels", {}, "juwels"),
    ("", "jpbl-s01-01", {}, "jupiter"),
    ("", "clariden-ln001", {}, "alps"),
    ("", "login2.vista.tacc.utexas.edu", {}, "vista"),
    ("parallelcluster", "ip-10-0-0-17", {}, "aws-parallelcluster"),
    ("rehearsal", "login", {}, "rehearsal"),
]
STRANGERS = [
    ("cluster", "login01", {}),
    ("slurm", "frontier", {}),
    ("hpc", "daint-ln002", {"NERSC_HOST": "cori"}),
    ("", "laptop.local", {}),
    ("Rehearsal", "vista.tacc.utexas.edu.example.org", {}),
]


@pytest.mark.parametrize(("cluster", "host", "environ", "expected"), MACHINES)
def test_a_machine_is_recognised(cluster: str, host: str, environ: dict[str, str], expected: str) -> None:
    assert profile.recognise(cluster, [host], environ) == [expected]


@pytest.mark.parametrize(("cluster", "host", "environ"), STRANGERS)
def test_another_machine_is_not_recognised(cluster: str, host: str, environ: dict[str, str]) -> None:
    assert profile.recognise(cluster, [host], environ) == []


def test_the_clusters_name_is_read_from_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\nprintf 'CliFilterPlugins = (null)\\nClusterName             = rehearsal\\n'\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    found, why = profile.choose("here", {})

    assert found.name == "rehearsal"
    assert why.startswith("recognised: cluster rehearsal, host ")


def test_here_is_the_profile_of_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "cluster_name", lambda: "rehearsal")

    assert profile.choose("here", {"VERLJOB_PROFILE": "lumi"})[0].name == "lumi"
    assert profile.choose("vista", {"VERLJOB_PROFILE": "lumi"})[0].name == "vista"


def test_without_a_match_the_names_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "cluster_name", lambda: "")
    monkeypatch.setattr(profile, "recognise", lambda *_: [])

    with pytest.raises(BadProfile, match=r"No profile matches this machine.*Name one: alps, "):
        profile.choose("here", {})


def test_a_new_site_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "new.toml"
    path.write_text(
        '[sbatch]\nflags = ["--partition=a"]\n[nodes]\nbinds = ["/a", "/b:/c:ro"]\n[modules]\nload = ["x", "y/1"]\n'
    )

    settings = {setting.name: setting.value for setting in profile.read(str(path)).settings()}

    assert settings == {"VERLJOB_MODULES": "x y/1", "VERLJOB_MOUNTS": "/a,/b:/c:ro"}


def test_a_personal_file_completes_its_site(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'site = "vista"\n[values]\naccount = "A-1"\n[bad_nodes.c610-021]\nreason = "slow"\ndate = 2026-11-01\n'
    )

    mine = profile.read(str(path))

    assert mine.get("values", "account") == "A-1"
    assert mine.get("values", "partition") == "gh"
    assert {setting.name: setting.value for setting in mine.settings()}["VERLJOB_GPUS_PER_NODE"] == "1"
    assert [name for name, _ in mine.named("bad_nodes")] == ["c610-021"]


def test_a_variable_of_a_personal_file_has_neither_condition_nor_source_of_the_site(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('site = "frontier"\n[environment.NCCL_NET]\nvalue = "Socket"\n')

    mine = profile.read(str(path))

    assert mine.tables["environment.NCCL_NET"] == {"value": "Socket"}
    assert mine.origin("environment.NCCL_NET") == "your file (no date)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gpus]\nper_node = true", "write a int"),
        ('[gpus]\nper_node = "4"', "write a int"),
        ('[nodes]\ninternet = "no"', "write a bool"),
        ('[sbatch]\nflags = "--a"', "write a list"),
        ("[sbatch]\ndate = 2026-02-30", "day is out of range"),
        ('[values]\naccount = "a; id"', "no value of a flag"),
        ('[values]\naccount = "$(id)"', "no value of a flag"),
        ('[environment.NCCL_X]\nwhen = ["plugin"]', "has no value"),
        ("[nodes]\ncolour = 1", "not a key of a profile"),
        ("about = 'x'", "new.toml:1"),
    ],
)
def test_another_type_or_form_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "new.toml"
    path.write_text(f"{text}\n")

    with pytest.raises(BadProfile, match=message):
        profile.read(str(path))


@pytest.mark.parametrize("name", ["../x", "a/b", "X", "", "nowhere", "/nowhere/x.toml", "./nowhere.toml"])
def test_a_name_of_no_profile_is_refused(name: str) -> None:
    with pytest.raises(BadProfile):
        profile.read(name)


@other_account.NEEDS_ROOT
def test_a_file_of_another_account_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "new.toml"
    path.write_text('about = "x"\n')
    assert profile.read(str(path)).get("", "about") == "x"
    path.chmod(0o666)
    with pytest.raises(BadProfile, match="can be written by others"):
        profile.read(str(path))
    path.chmod(0o644)
    os.chown(path, 65534, 65534)
    with pytest.raises(BadProfile, match="belongs to nobody"):
        profile.read(str(path))


def test_reading_runs_nothing_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "env.sh"
    script.write_text(f"touch {tmp_path}/ran\n")
    monkeypatch.setenv("BASH_ENV", str(script))
    monkeypatch.setenv("BASH_FUNC_fail%%", f"() {{ touch {tmp_path}/ran; }}")

    profile.read("lumi")

    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("when", "nodes", "expected"),
    [
        ((), 1, "yes"),
        (("nodes > 1",), 1, "no"),
        (("nodes > 1",), 2, "yes"),
        (("nodes > 1", "plugin"), 1, "no"),
        (("nodes > 1", "plugin"), 2, "if plugin"),
        (("gpu = GB200", "plugin"), 1, "if gpu = GB200 and plugin"),
    ],
)
def test_a_condition_holds_or_is_decided_on_the_node(when: tuple[str, ...], nodes: int, expected: str) -> None:
    assert profile.Setting("A", "1", when, "environment.A").holds(nodes) == expected
