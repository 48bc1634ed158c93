"""The environment of Weights & Biases in a job."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from verl_node.inputs import reachability
from verl_node.node import wandb_mode
from verl_node.training import recipe

from tests.support.paths import CHECKOUT

RUN = Path("/run-directory")
DOES_NOT_ANSWER = "https://api.wandb.ai does not answer (timed out)"


def environment(
    env: dict[str, str], notes: list[str] | None = None, logger: str = "[console,wandb]", wandb: bool = True
) -> dict[str, str]:
    training = recipe.make_training(
        recipe.load(CHECKOUT / "slurm" / "recipes" / "gsm8k_grpo.yaml"),
        [f"trainer.logger={logger}"] if logger else [],
        verl_version="0.9.1",
        nodes=2,
        gpus_per_node=8,
        run_dir=RUN,
        data_dir=Path("/data"),
        wandb=wandb,
    )
    return asyncio.run(wandb_mode.environment(training, RUN, env, (notes if notes is not None else []).append))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that were asked; none of them answers."""
    addresses: list[str] = []

    async def check(url: str, _: object) -> str:
        addresses.append(url)
        return DOES_NOT_ANSWER

    monkeypatch.setattr(reachability, "check", check)
    return addresses


def test_without_internet_wandb_is_offline_in_the_run_directory(asked: list[str]) -> None:
    notes: list[str] = []

    assert environment({}, notes) == {"WANDB_DIR": str(RUN), "WANDB_MODE": "offline"}
    assert asked == ["https://api.wandb.ai"]
    assert DOES_NOT_ANSWER in notes[0]
    assert f"wandb sync {RUN}/wandb/offline-run-*" in notes[0]


def test_a_recipe_with_wandb_and_a_key_is_offline_too(asked: list[str]) -> None:
    assert environment({}, logger="")["WANDB_MODE"] == "offline"


def test_a_site_has_its_own_server(asked: list[str]) -> None:
    environment({"WANDB_BASE_URL": "https://wandb.site"})

    assert asked == ["https://wandb.site"]


def test_with_internet_wandb_is_online(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(*_: object) -> str:
        return ""

    monkeypatch.setattr(reachability, "check", check)

    assert environment({}) == {"WANDB_DIR": str(RUN)}


@pytest.mark.parametrize("mode", ["online", "offline", "disabled"])
def test_the_users_mode_and_folder_stay(asked: list[str], mode: str) -> None:
    assert environment({"WANDB_MODE": mode, "WANDB_DIR": "/mine"}) == {}
    assert asked == []


@pytest.mark.parametrize(("logger", "wandb"), [("[console]", True), ("[vemlp_wandb]", True), ("", False)])
def test_a_training_without_wandb_asks_nobody(asked: list[str], logger: str, wandb: bool) -> None:
    assert environment({}, logger=logger, wandb=wandb) == {}
    assert asked == []
