"""entrypoint.sh as a container starts it, with a python3 that tells how it was called."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ENTRYPOINT = Path(__file__).parents[3] / "entrypoints" / "entrypoint.sh"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment whose python3 finds no verl_node on its own, and prints its words and PYTHONPATH."""
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\n[ "$1" != -c ] || exit 1\necho "$@ from $PYTHONPATH with ${HF_TOKEN:-none}"\n')
    python.chmod(0o755)
    (tmp_path / "secrets").write_text("# secrets\nHF_TOKEN=hf_a=b c\nnot a name=x\n")
    return {"PATH": f"{tmp_path}:/usr/bin:/bin", "VERLJOB_SECRETS": str(tmp_path / "secrets")}


def enter(environ: dict[str, str], *words: str) -> str:
    ended = subprocess.run([ENTRYPOINT, *words], env=environ, capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    return ended.stdout


def test_node_is_verl_node_with_its_flags_and_the_secrets(environ: dict[str, str]) -> None:
    said = enter(environ, "node", "--head", "--nodes", "2")

    assert said == f"-m verl_node --head --nodes 2 from {ENTRYPOINT.parent} with hf_a=b c\n"


def test_python_is_not_asked_for_packages_that_pythonpath_names(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "python3").write_text('#!/bin/sh\necho "$1 from $PYTHONPATH"\n')

    assert enter({**environ, "PYTHONPATH": f"/a:{ENTRYPOINT.parent}"}, "node") == f"-m from /a:{ENTRYPOINT.parent}\n"


def test_anything_else_is_run_as_it_stands(environ: dict[str, str]) -> None:
    assert enter(environ, "printf", "%s|", "a b", "c") == "a b|c|"


def test_without_secrets_nothing_is_exported(environ: dict[str, str]) -> None:
    assert enter({**environ, "VERLJOB_SECRETS": "/nowhere"}, "node").endswith("with none\n")
