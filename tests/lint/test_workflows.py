"""Workflows of GitHub: zizmor and shellcheck find nothing, permissions are minimal, no secret or tag becomes code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.paths import CHECKOUT

TOOLS = Path(sys.executable).parent
FOLDER = CHECKOUT / ".github" / "workflows"
WORKFLOWS: dict[str, dict[str, Any]] = {path.stem: yaml.safe_load(path.read_text()) for path in FOLDER.glob("*.y*ml")}
STEPS = [
    (f"{name}-{job}-{number}", step["run"])
    for name, workflow in WORKFLOWS.items()
    for job, each in workflow["jobs"].items()
    for number, step in enumerate(each["steps"])
    if "run" in step
]
PERMISSIONS = {
    "ci": [{"contents": "read"}, None],
    "release": [{}, {"contents": "read", "packages": "write"}, {"contents": "write"}],
}

TAG = "v1;touch pwned;$(touch pwned)`touch pwned`"
SECRETS = {"REGISTRY_PASSWORD": "s3cret-login", "RELEASE_KEY": "s3cret-key", "VERLJOB_KEY_PASSWORD": "s3cret-password"}
VALUES = {
    **SECRETS,
    "TAG": TAG,
    "REGISTRY": "ghcr.io/Owner/Repo",
    "VARIANTS": "cpu;touch pwned",
    "REGISTRY_USER": "owner $(touch pwned)",
    "DOCKER_CONFIG": "/tmp/docker",  # noqa: S108  the fakes write nothing there
    "GH_REPO": "Owner/Repo",
    "GH_TOKEN": "s3cret-token",
}
# Logs its arguments, one per line, and its input.
FAKE = """#!/bin/bash
printf '%s\\n' "${0##*/}" "$@" -- >> "$LOG"
[[ " $* " != *" view "* ]] || exit 1
[[ " $* " != *stdin* ]] || cat > "$LOG.input"
"""


def test_zizmor_finds_nothing() -> None:
    done = subprocess.run(
        [TOOLS / "zizmor", "--offline", "--no-progress", str(FOLDER)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("name", "script"), STEPS)
def test_shell_of_a_step_passes_shellcheck(name: str, script: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.sh"
    file.write_text(script)
    done = subprocess.run([TOOLS / "shellcheck", "--shell=bash", file], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("name", "script"), STEPS)
def test_values_reach_a_step_through_its_environment(name: str, script: str) -> None:
    assert "${{" not in script, name


@pytest.mark.parametrize("name", WORKFLOWS)
def test_jobs_have_only_the_permissions_that_they_need(name: str) -> None:
    workflow = WORKFLOWS[name]
    jobs = [job.get("permissions") for job in workflow["jobs"].values()]

    assert [workflow["permissions"], *jobs] == PERMISSIONS[name]


@pytest.fixture
def calls(tmp_path: Path) -> list[list[str]]:
    """Run all shell of the release's workflow with fakes of its commands; return the arguments of each call."""
    log, folder, sudo = tmp_path / "log", tmp_path / "checkout", tmp_path / "bin/sudo"
    folder.mkdir()
    (tmp_path / "bin").mkdir()
    for fake in (folder / "run", tmp_path / "bin/docker", tmp_path / "bin/gh"):
        fake.write_text(FAKE)
        fake.chmod(0o755)
    sudo.write_text('#!/bin/bash\n[[ $1 != --preserve-env=* ]] || shift\nexec "$@"\n')
    sudo.chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    for job in WORKFLOWS["release"]["jobs"].values():
        for step in job["steps"]:
            names = {**job["env"], **step.get("env", {})}
            environment = {"PATH": path, "LOG": str(log), "RUNNER_TEMP": str(tmp_path)}
            environment |= {name: VALUES[name] for name in names}
            if step.get("if") == "always()":
                check_key_file(tmp_path / "release.pem")
            if "run" in step:
                subprocess.run(["bash", "-e", "-c", step["run"]], cwd=folder, env=environment, check=True)
    assert not list(tmp_path.rglob("pwned"))
    assert not (tmp_path / "release.pem").exists()
    return [call.splitlines() for call in log.read_text().split("--\n") if call]


@pytest.mark.parametrize(("tag", "flag"), [("v1.2.0", "false"), ("v1.2.0rc1", "true"), ("v1.2.0b2", "true")])
def test_github_marks_only_a_pre_release_as_one(tag: str, flag: str, tmp_path: Path) -> None:
    log, gh = tmp_path / "log", tmp_path / "gh"
    gh.write_text(FAKE)
    gh.chmod(0o755)
    (step,) = (script for name, script in STEPS if name.startswith("release-text"))
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(log), "TAG": tag}
    subprocess.run(["bash", "-e", "-c", step], env=environment, check=True)

    assert f"--prerelease={flag}" in log.read_text().splitlines()


def check_key_file(path: Path) -> None:
    assert path.read_text() == f"{SECRETS['RELEASE_KEY']}\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_release_passes_a_hostile_tag_as_one_argument_and_no_secret(calls: list[list[str]], tmp_path: Path) -> None:
    output = str(tmp_path / "release")
    login, publish, *texts = calls

    assert login == ["docker", "login", "ghcr.io", "--username", VALUES["REGISTRY_USER"], "--password-stdin"]
    assert (tmp_path / "log.input").read_text() == f"{SECRETS['REGISTRY_PASSWORD']}\n"
    assert publish == [
        *("run", "image.release", TAG, "--registry", "ghcr.io/owner/repo", "--variants", VALUES["VARIANTS"]),
        *("--key", str(tmp_path / "release.pem"), "--output", output),
    ]
    assert [call[:4] for call in texts] == [
        ["gh", "release", verb, TAG] for verb in ("view", "create", "upload", "edit")
    ]
    assert "s3cret" not in str(calls)
