"""`invoke job.check`: the command that it runs, and its result."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from verl_node.settings.settings import Settings

from slurm.errors import CannotCheck
from slurm.jobs import check

JOB = check.Job("demo_cpu", ["trainer.total_epochs=2"], 2, 1, "", 80, 0, 0)


@pytest.fixture
def docker(tmp_path: Path) -> Path:
    """A docker that records its arguments and exits with the code in a file beside it."""
    fake = tmp_path / "docker"
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/argv\nexit "$(cat {tmp_path}/code)"\n')
    fake.chmod(0o755)
    (tmp_path / "code").write_text("0")
    return fake


def environ(docker: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "VERLJOB_DOCKER": str(docker), "HF_HOME": "/none", **more}


def arguments_of(docker: Path) -> list[str]:
    return (docker.parent / "argv").read_text().splitlines()


def test_the_container_gets_recipe_flags_and_overrides(docker: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    given = environ(docker, VERLJOB_MODEL=str(tmp_path / "model"), WANDB_API_KEY="a-secret", HF_TOKEN="hf_another")  # noqa: S106
    assert check.run(JOB, given) == 0
    argv = arguments_of(docker)
    image = argv.index("verl.cpu:latest")
    assert argv[:2] == ["run", "--rm"]
    assert argv[image + 1 : image + 4] == ["python3", "-m", "verl_node.configuration"]
    assert argv[-2:] == ["--", "trainer.total_epochs=2"]
    assert argv[argv.index("--gpu-memory") + 1] == str(80 << 30)
    assert {"--wandb", "--long"} <= set(argv)
    assert f"type=bind,source={tmp_path}/model,target={tmp_path}/model,readonly" in argv
    assert argv[argv.index("HF_TOKEN") - 1] == "--env"
    assert not {"a-secret", "hf_another"} & set(argv)


def test_a_wrong_configuration_returns_65_and_an_unfit_image_raises(docker: Path) -> None:
    (docker.parent / "code").write_text("65")
    assert check.run(JOB, environ(docker)) == 65
    (docker.parent / "code").write_text("127")
    with pytest.raises(CannotCheck, match=r"ended with 127 for verl\.cpu:latest"):
        check.run(JOB, environ(docker))


def test_a_bare_environment_needs_no_container(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "python3"
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$PYTHONPATH" "$@" > {tmp_path}/argv\n')
    fake.chmod(0o755)
    assert check.run(JOB, {"VERLJOB_RUNTIME": "bare", "VERLJOB_IMAGE": str(tmp_path), "PATH": os.environ["PATH"]}) == 0
    lines = (tmp_path / "argv").read_text().splitlines()
    assert lines[0].endswith("/entrypoints")
    assert lines[1:3] == ["-m", "verl_node.configuration"]


@pytest.mark.parametrize(
    ("text", "wanted"), [("", 0), ("25", 25), ("90:00", 90), ("2:30:00", 150), ("30-00:00:00", 43200), ("1-12", 2160)]
)
def test_a_time_limit_is_parsed_as_by_sbatch(text: str, wanted: int) -> None:
    assert check.minutes(text) == wanted


def test_a_wrong_time_limit_or_recipe_is_reported() -> None:
    with pytest.raises(CannotCheck, match="The time limit soon"):
        check.minutes("soon")
    with pytest.raises(CannotCheck, match=r"recipes are demo_cpu, gsm8k_grpo, gsm8k_ppo"):
        check.find("gsm9k")


def test_print_passes_the_flag_to_the_image(docker: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert check.run(replace(JOB, only_print=True), environ(docker)) == 0

    assert "--print" in arguments_of(docker)
    assert capfd.readouterr().out == ""  # the command alone


def test_a_recipes_platform_is_read_as_yaml(docker: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("platform: 'cuda'\n")
    check.run(replace(JOB, recipe=str(tmp_path / "mine.yaml")), environ(docker))
    assert "verl.cuda:latest" in arguments_of(docker)

    (tmp_path / "mine.yaml").write_text("platform: [\n")
    with pytest.raises(CannotCheck, match="is not valid YAML"):
        check.run(replace(JOB, recipe=str(tmp_path / "mine.yaml")), environ(docker))


@pytest.mark.parametrize("key", ["", "k"])
@pytest.mark.parametrize("mode", ["", "online", "offline", "dryrun", "disabled"])
@pytest.mark.parametrize(
    "text", [None, "machine api.wandb.ai login user password k\n", "machine other\n# api.wandb.ai\n", "broken ("]
)
def test_submit_host_and_node_agree_whether_wandb_can_be_used(
    key: str, mode: str, text: str | None, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "netrc").write_text(text)
    named = {"WANDB_API_KEY": key, "WANDB_MODE": mode, "NETRC": str(tmp_path / "netrc"), "HOME": str(tmp_path)}
    given = {name: value for name, value in named.items() if value}

    assert check._logs_to_wandb(given) is Settings.from_env(given).logs_to_wandb
