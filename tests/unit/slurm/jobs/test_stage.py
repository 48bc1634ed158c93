"""`invoke stage`: the command that it runs, and what it prints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm.errors import CannotStage
from slurm.jobs import check, stage

LINES = [
    '{"time": 1, "phase": "data", "event": "begin"}',
    '{"time": 1, "phase": "data", "event": "end", "message": "gsm8k: /data/gsm8k/train.parquet"}',
    "Fetching 5 files",
    '{"time": 1, "phase": "model", "event": "error", "message": "Org/Name is not there."}',
]


@pytest.fixture
def docker(tmp_path: Path) -> Path:
    """A docker that records its arguments, prints LINES and exits with the code in a file beside it."""
    (tmp_path / "lines").write_text("\n".join(LINES) + "\n")
    (tmp_path / "code").write_text("0")
    fake = tmp_path / "docker"
    fake.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/argv\ncat {tmp_path}/lines\nexit "$(cat {tmp_path}/code)"\n'
    )
    fake.chmod(0o755)
    return fake


def bring(docker: Path, **more: str) -> list[str]:
    folder = docker.parent
    environ = {"PATH": os.environ["PATH"], "VERLJOB_DOCKER": str(docker), "HF_HOME": f"{folder}/hf", "HF_TOKEN": "hf_x"}
    environ |= {"VERLJOB_DATA": f"{folder}/data", **more}
    printed: list[str] = []
    stage.bring(check.find("gsm8k_grpo"), ["a.b=c"], "verl.cuda:x", environ, printed.append)
    return printed


def test_the_container_may_write_data_and_models_only(docker: Path) -> None:
    bring(docker, VERLJOB_MODEL="Org/Name", VERLJOB_DATA_SOURCE=str(docker.parent))
    argv = (docker.parent / "argv").read_text().splitlines()
    mounts = [value for flag, value in zip(argv, argv[1:]) if flag == "--mount"]

    assert f"type=bind,source={check.RECIPES},target={check.RECIPES},readonly" in mounts
    assert argv[argv.index("verl.cuda:x") :] == [
        *("verl.cuda:x", "python3", "-m", "verl_node.stage"),
        *("--recipe", str(check.RECIPES / "gsm8k_grpo.yaml"), "--data-dir", f"{docker.parent}/data"),
        *("--source", str(docker.parent), "--model", "Org/Name", "--", "a.b=c"),
    ]
    assert "hf_x" not in " ".join(argv)


def test_folders_are_made_by_the_account_and_writable(docker: Path) -> None:
    bring(docker)
    argv = (docker.parent / "argv").read_text().splitlines()

    for name in ("data", "hf"):
        folder = docker.parent / name
        assert folder.stat().st_uid == os.getuid()
        assert f"type=bind,source={folder},target={folder}" in argv


def test_a_folder_inside_the_raw_data_stays_writable(docker: Path) -> None:
    bring(docker, VERLJOB_DATA_SOURCE=str(docker.parent))
    argv = (docker.parent / "argv").read_text().splitlines()

    assert f"type=bind,source={docker.parent},target={docker.parent},readonly" in argv
    assert f"type=bind,source={docker.parent}/data,target={docker.parent}/data" in argv


def test_phases_are_printed_as_text(docker: Path) -> None:
    assert bring(docker) == [
        "data       gsm8k: /data/gsm8k/train.parquet",
        "Fetching 5 files",
        "model      Org/Name is not there.",
    ]


def test_a_failure_keeps_the_reason_above(docker: Path) -> None:
    (docker.parent / "code").write_text("66")

    with pytest.raises(CannotStage, match="ended with 66"):
        bring(docker)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"VERLJOB_RUNTIME": "enroot"}, "use docker, podman or bare"),
        ({"VERLJOB_DOCKER": "/none"}, "could not be started"),
    ],
)
def test_a_machine_without_a_client_is_told_what_to_use(docker: Path, more: dict[str, str], message: str) -> None:
    with pytest.raises(CannotStage, match=message):
        bring(docker, **more)
