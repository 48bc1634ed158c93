"""Configuration errors are found before a training starts: the image's own verl composes and validates every case."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from docker import DockerClient
from verl_node.configuration.verl_validation import REGISTRIES
from verl_node.training import releases

from tests.support.paths import RECIPES

HERE = Path(__file__).parent / "configurations"
CASES = yaml.safe_load((HERE / "cases.yaml").read_text())
ERRORS = [(name, pattern) for name, case in CASES["wrong"].items() for pattern in case["says"]]
VALID = CASES["right"]
Run = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def run(daemon: DockerClient, cpu_image: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a command in the image, with the cases and without network; returns exit code and standard output."""
    shared = tmp_path_factory.mktemp("configurations")
    shared.chmod(0o777)
    volumes = {
        str(shared): {"bind": "/cases", "mode": "rw"},
        str(RECIPES): {"bind": "/recipes", "mode": "ro"},
        str(HERE): {"bind": "/configurations", "mode": "ro"},
    }

    def inside(*command: str) -> tuple[int, str]:
        container = daemon.containers.run(
            cpu_image, list(command), detach=True, environment={"HOME": "/tmp"}, network_mode="none", volumes=volumes  # noqa: S108
        )  # fmt: skip
        try:
            code = container.wait(timeout=280)["StatusCode"]
            return code, container.logs(stdout=True, stderr=code not in (0, 65)).decode()
        finally:
            container.remove(force=True)

    return inside


@pytest.fixture(scope="module")
def results(run: Run) -> dict[str, dict[str, list[str]]]:
    code, output = run("python3", "/configurations/check_cases.py")
    assert code == 0, output
    found: dict[str, dict[str, list[str]]] = json.loads(output.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def messages(results: dict[str, dict[str, list[str]]]) -> dict[str, list[str]]:
    """The messages for each case."""
    return results["findings"]


def test_there_are_enough_cases() -> None:
    assert len(ERRORS) >= 30
    assert len(VALID) >= 15


@pytest.mark.parametrize(("name", "pattern"), ERRORS)
def test_an_invalid_case_is_an_error_with_its_fix(name: str, pattern: str, messages: dict[str, list[str]]) -> None:
    errors = "\n".join(message for message in messages[name] if message.startswith("error:"))
    assert re.search(pattern, errors), messages[name]


@pytest.mark.parametrize("name", VALID)
def test_a_valid_case_has_neither_errors_nor_warnings(name: str, messages: dict[str, list[str]]) -> None:
    problems = [message for message in messages[name] if message.startswith(("error:", "warning:"))]
    assert [message for message in problems if "qwen2-tiny is not on this node" not in message] == []


@pytest.mark.parametrize("key", REGISTRIES)
def test_the_tables_values_are_those_registered_by_this_verl(
    key: str, results: dict[str, dict[str, list[str]]]
) -> None:
    ours = {"hf", "tracking"}  # the CPU image's own rollout; an alias of wandb in verl's tracking
    assert {*releases.load("0.9.1").choices[key]} - ours == {*results["registered"][key]} - ours


def test_the_command_line_prints_lines_and_returns_an_exit_code(run: Run) -> None:
    args = ("--recipe", "/recipes/demo_cpu.yaml", "--gpus-per-node", "1", "--", "trainer.save_freqq=1")
    code, output = run("python3", "-m", "verl_node.configuration", *args)
    assert code == 65
    assert output.splitlines()[0] == "demo_cpu with verl 0.9.1 on 2 nodes with 1 GPUs each"
    assert "Use trainer.save_freq." in output
