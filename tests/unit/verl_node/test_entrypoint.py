"""entrypoint.sh as a container starts it, with a python3 that prints its arguments."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ENTRYPOINTS

ENTRYPOINT = ENTRYPOINTS / "entrypoint.sh"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment whose python3 does not find verl_node, and prints its arguments and PYTHONPATH."""
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\n[ "$1" != -c ] || exit 1\necho "$@ from $PYTHONPATH with ${HF_TOKEN:-none}"\n')
    python.chmod(0o755)
    (tmp_path / "secrets").write_text("# secrets\nHF_TOKEN=hf_a=b c\nnot a name=x\n")
    return {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), "VERLJOB_SECRETS": str(tmp_path / "secrets")}


def enter(environ: dict[str, str], *words: str) -> str:
    ended = subprocess.run([ENTRYPOINT, *words], env=environ, capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    return ended.stdout


def test_node_runs_verl_node_with_its_flags_and_the_secrets(environ: dict[str, str]) -> None:
    said = enter(environ, "node", "--head", "--nodes", "2")

    assert said == f"-m verl_node --head --nodes 2 from {ENTRYPOINT.parent} with hf_a=b c\n"


def test_python_is_not_started_if_pythonpath_has_the_packages(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "python3").write_text('#!/bin/sh\necho "$1 from $PYTHONPATH"\n')

    assert enter({**environ, "PYTHONPATH": f"/a:{ENTRYPOINT.parent}"}, "node") == f"-m from /a:{ENTRYPOINT.parent}\n"


def test_any_other_command_runs_unchanged(environ: dict[str, str]) -> None:
    assert enter(environ, "printf", "%s|", "a b", "c") == "a b|c|"


def test_without_secrets_nothing_is_exported(environ: dict[str, str]) -> None:
    assert enter({**environ, "VERLJOB_SECRETS": "/nowhere"}, "node").endswith("with none\n")


WHO = 'echo "$HOME $USER $LOGNAME"'


def test_an_account_with_a_home_and_a_name_keeps_both(environ: dict[str, str]) -> None:
    known = {**environ, "USER": "ada", "LOGNAME": "lovelace"}

    assert enter(known, "bash", "-c", WHO) == f"{environ['HOME']} ada lovelace\n"


@pytest.mark.parametrize("home", ["/", "/nowhere", ""])
def test_an_account_without_a_home_gets_one(environ: dict[str, str], tmp_path: Path, home: str) -> None:
    said = enter({**environ, "HOME": home, "TMPDIR": str(tmp_path)}, "bash", "-c", 'touch ~/x && echo "$HOME"').strip()

    assert Path(said).parent == tmp_path
    assert Path(said, "x").exists()


def test_a_home_that_cannot_be_created_is_reported(environ: dict[str, str]) -> None:
    homeless = {**environ, "HOME": "/nowhere", "TMPDIR": "/nowhere"}
    ended = subprocess.run([ENTRYPOINT, "true"], env=homeless, capture_output=True, text=True, check=False)

    assert ended.returncode == 0
    assert ended.stderr.endswith(
        "no folder for HOME can be created in /nowhere; start the container with --tmpfs /tmp\n"
    )


def test_outside_of_an_image_the_account_stays(environ: dict[str, str]) -> None:
    assert enter({**environ, "VERLJOB_RUN_AS": "12345"}, "id", "-u") == f"{os.getuid()}\n"
