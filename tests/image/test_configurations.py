"""What verl would say late is said before: every case is composed and validated by the image's own verl."""

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
MISTAKES = [(name, says) for name, case in CASES["wrong"].items() for says in case["says"]]
RIGHT = CASES["right"]
Run = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def run(daemon: DockerClient, cpu_image: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a command in the image, without network and with the cases; its exit code and standard output."""
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
def judged(run: Run) -> dict[str, dict[str, list[str]]]:
    code, output = run("python3", "/configurations/check_cases.py")
    assert code == 0, output
    found: dict[str, dict[str, list[str]]] = json.loads(output.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def told(judged: dict[str, dict[str, list[str]]]) -> dict[str, list[str]]:
    """The findings of each case, as sentences."""
    return judged["findings"]


def test_there_are_as_many_as_were_asked_for() -> None:
    assert len(MISTAKES) >= 30
    assert len(RIGHT) >= 15


@pytest.mark.parametrize(("name", "says"), MISTAKES)
def test_what_is_wrong_is_an_error_with_its_fix(name: str, says: str, told: dict[str, list[str]]) -> None:
    wrong = "\n".join(said for said in told[name] if said.startswith("error:"))
    assert re.search(says, wrong), told[name]


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_one_is_not_even_warned_of(name: str, told: dict[str, list[str]]) -> None:
    spoken = [said for said in told[name] if said.startswith(("error:", "warning:"))]
    assert [said for said in spoken if "qwen2-tiny is not on this node" not in said] == []


@pytest.mark.parametrize("key", REGISTRIES)
def test_the_tables_values_are_those_that_this_verl_registers(
    key: str, judged: dict[str, dict[str, list[str]]]
) -> None:
    ours = {"hf", "tracking"}  # the CPU image's own rollout; a name that verl's tracking takes for wandb
    assert {*releases.load("0.9.1").choices[key]} - ours == {*judged["registered"][key]} - ours


def test_a_person_is_told_in_lines_and_by_the_exit_code(run: Run) -> None:
    words = ("--recipe", "/recipes/demo_cpu.yaml", "--gpus-per-node", "1", "--", "trainer.save_freqq=1")
    code, output = run("python3", "-m", "verl_node.configuration", *words)
    assert code == 65
    assert output.splitlines()[0] == "demo_cpu with verl 0.9.1 on 2 nodes with 1 GPUs each"
    assert "Use trainer.save_freq." in output
