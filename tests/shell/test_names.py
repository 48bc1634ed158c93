"""Names of files in a recipe, a table or an export: none leads out of slurm/, none runs code."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.shell.rig import CHECKOUT, Rig
from tests.support.shell.step import SUCCESS, last_line

NOBODY = 65534


@pytest.fixture
def evil(rig: Rig) -> Path:
    """A table and a runtime that create a file when they are read, in a folder outside of slurm/."""
    folder = rig.root / "evil"
    folder.mkdir()
    (folder / "plat.sh").write_text(f"touch {rig.root}/ran\n")
    (folder / "plat.env").write_text(
        f"VERLJOB_RUNTIME=../../../../..{folder}/plat\nBASH_ENV={folder}/plat.sh\nVERLJOB_REQUIRE_SIGNATURE=/theirs.pub\n"
    )
    return folder


def dry_run(rig: Rig, *arguments: str, **more: str) -> tuple[int, str]:
    """Run a dry run; return its exit code and last line."""
    more = {"VERLJOB_DRY_RUN": "1", "SLURM_JOB_ID": "<unset>", "VERLJOB_HOME": str(CHECKOUT), **more}
    done = rig.launch(*arguments, script=None, **more)

    assert not (rig.root / "ran").exists()
    return done.returncode, last_line(done)


@pytest.mark.parametrize("key", ["platform", "accelerator", "module", "model", "data"])
def test_a_recipe_runs_no_code_in_a_dry_run(rig: Rig, evil: Path, key: str) -> None:
    up = "../" * len(CHECKOUT.parts)
    lines = {
        "platform": [
            f"{up}..{evil}/plat",
            f"../../../../..{evil}/plat",
            f"$(touch {rig.root}/ran)",
            "CPU",
            "cpu/../cpu",
        ],
        "accelerator": [f"touch {rig.root}/ran", f"a[$(touch {rig.root}/ran)]"],
    }.get(key, [f"$(touch {rig.root}/ran)", f"`touch {rig.root}/ran`", f"x[$(touch {rig.root}/ran)]"])
    for value in lines:
        values = {
            "platform": "cpu",
            "accelerator": "false",
            "module": "mine",
            "data": "null",
            "model": "null",
            key: value,
        }
        recipe = rig.work / "evil.yaml"
        recipe.write_text(
            "".join(f"{name}: {text}\n" for name, text in values.items()) + f"overrides:\n  {value}: {value}\n"
        )

        code, output = dry_run(rig, "./evil.yaml")

        assert (code == 64) == (key in ("platform", "accelerator")), output
        assert (
            key not in ("platform", "accelerator")
            or f"{recipe} says {key}" in output
            or f"{key}: of {recipe} is '" in output
        )


@pytest.mark.parametrize("name", ["VERLJOB_PLATFORM", "VERLJOB_RUNTIME", "VERLJOB_PROFILE"])
@pytest.mark.parametrize("value", ["../../../evil/plat", "a/b", "Rocm", "cpu.env", "cp u", "x;y", ""])
def test_a_name_has_only_small_letters_digits_and_dashes(rig: Rig, evil: Path, name: str, value: str) -> None:
    code, output = dry_run(rig, "cluster", **{name: value})

    if value:
        assert code == 64
        assert f"{name} is '{value}'" in output
    else:
        assert code == 0


def test_a_recipe_name_cannot_leave_its_folder(rig: Rig) -> None:
    (rig.work / "a.yaml").write_text("platform: cpu\n")
    code, output = dry_run(rig, "../../" + "../" * len(CHECKOUT.parts) + str(rig.work / "a")[1:])

    assert code == 64
    assert "no recipe '../../" in output


REFUSED = (
    "BASH_ENV ENV LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT PATH IFS SHELLOPTS BASHOPTS BASH_XTRACEFD PS4 GLOBIGNORE CDPATH "
    "VERLJOB_HOME VERLJOB_PROFILE"
)


@pytest.mark.parametrize("name", REFUSED.split())
def test_a_table_cannot_set_variables_that_change_how_programs_start(rig: Rig, name: str) -> None:
    (rig.work / "site.env").write_text(f"NCCL_DEBUG=INFO\n{name}=/evil\n")

    code, output = dry_run(rig, "cluster", VERLJOB_PROFILE=f"{rig.work}/site.env")

    assert code == 64
    assert f"{rig.work}/site.env:2 sets {name}, which no table may set" in output


def test_only_a_profile_wins_over_an_exported_requirement(rig: Rig) -> None:
    show = 'printf "%s|%s" "${VERLJOB_REQUIRE_SIGNATURE-}" "${VERLJOB_COSIGN-}"'
    site, platform = rig.work / "site.env", rig.work / "platform.env"
    platform.write_text("VERLJOB_REQUIRE_SIGNATURE=/platform.pub\nVERLJOB_COSIGN=/platform\n")
    site.write_text(
        "VERLJOB_REQUIRE_SIGNATURE=/site.pub\nVERLJOB_REQUIRE_SIGNATURE=\nVERLJOB_REQUIRE_SIGNATURE=/second.pub\n"
    )

    def order(script: str, **more: str) -> str:
        done = rig.source("common/log common/verdict common/env_table common/profile", f"{script}\n{show}", **more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    both = f"profile::read {site} node; env_table::read {platform}"
    mine = {"VERLJOB_REQUIRE_SIGNATURE": "/mine.pub", "VERLJOB_COSIGN": "/mine"}
    assert order(both) == "/site.pub|/platform"
    assert order(both, **mine) == "/site.pub|/mine"
    assert order(f"env_table::read {platform}", **mine) == "/mine.pub|/mine"
    assert order(f"env_table::read {platform}", VERLJOB_REQUIRE_SIGNATURE="") == "/platform.pub|/platform"
    site.write_text("VERLJOB_REQUIRE_SIGNATURE=\n")
    assert order(both, **mine) == "/mine.pub|/mine"


def test_a_profile_by_path_must_be_own_and_not_writable_by_others(rig: Rig) -> None:
    profile = rig.work / "site.env"
    profile.write_text("VERLJOB_PLATFORM=rocm\n")
    for path in (str(profile), "./site.env"):
        rig.fake("step", SUCCESS)
        assert rig.launch("cluster", VERLJOB_PROFILE=path).returncode == 0
        assert "VERLJOB_PLATFORM=rocm\n" in rig.faked("srun.env")

    profile.chmod(0o664)
    code, output = dry_run(rig, "cluster", VERLJOB_PROFILE=str(profile))
    assert (code, f"the profile {profile} can be written by others (mode 664) — chmod go-w" in output) == (77, True)
    profile.chmod(0o644)
    os.chown(profile, NOBODY, NOBODY)
    code, output = dry_run(rig, "cluster", VERLJOB_PROFILE=str(profile))
    assert (code, f"the profile {profile} belongs to nobody" in output) == (77, True)


@pytest.mark.parametrize("command", [["node.sh"], ["launch.sh", "cluster"]])
def test_a_runtime_of_another_folder_is_refused(rig: Rig, evil: Path, command: list[str]) -> None:
    name = "../../" + "../" * len(CHECKOUT.parts) + f"{evil}/plat"[1:]
    argv = ["bash", f"{CHECKOUT}/slurm/{command[0]}", *command[1:]]

    done = rig.run(*argv, **{**rig.step_environment(), "VERLJOB_RUNTIME": name})

    assert done.returncode == 64
    assert "VERLJOB_RUNTIME is " in done.stdout + done.stderr
    assert not (rig.root / "ran").exists()


@pytest.mark.parametrize("name", ["images/verl.tar", "../work/images/verl.tar"])
def test_a_reference_that_looks_like_a_file_is_refused_with_its_path(rig: Rig, name: str) -> None:
    (rig.work / "images").mkdir()
    (rig.work / "images/verl.tar").touch()

    done = rig.launch("cluster", VERLJOB_IMAGE=name)

    assert done.returncode == 64
    assert f"write ./{name} for the file, or docker.io/{name} for the name" in last_line(done)


def test_an_image_path_becomes_absolute_on_the_nodes(rig: Rig) -> None:
    rig.fake("step", SUCCESS)
    for name, expected in (
        ("./images/verl.tar", f"{rig.work}/images/verl.tar"),
        ("./../verl.tar", f"{rig.root}/verl.tar"),
        ("/a/verl.tar", "/a/verl.tar"),
        ("team/verl.cpu:1", "team/verl.cpu:1"),
    ):
        assert rig.launch("cluster", VERLJOB_IMAGE=name).returncode == 0
        assert f"VERLJOB_IMAGE={expected}\n" in rig.faked("srun.env")


def test_a_file_with_the_name_of_a_reference_is_not_loaded(rig: Rig) -> None:
    planted = rig.work / "registry.example.org" / "verl.rocm:1"
    planted.parent.mkdir()
    planted.write_text("another archive")
    rig.fake("registry", "registry.example.org/verl.rocm:1\n")

    rig.node(VERLJOB_IMAGE="registry.example.org/verl.rocm:1")

    assert rig.docker_run()[-2] == "sha256:pulled"
    assert "\nload\n" not in rig.faked("docker.argv")
