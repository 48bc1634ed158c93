"""The banner names the dashboard and warns about a cluster without authentication."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from verl_node.node import banner
from verl_node.settings.identity import Identity
from verl_node.settings.settings import Settings

Said = Callable[..., str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Said:
    """The output of a cluster without Slurm, by Ray version and variables; VERLJOB_TOKEN_FILE exists."""
    (tmp_path / "token").write_text("f" * 64)

    def say(ray: str, **environ: str) -> str:
        given = {"VERLJOB_HEAD_PORTS": "32000,32001,32002", "VERLJOB_TOKEN_FILE": str(tmp_path / "token"), **environ}
        settings = Settings.from_env(given)
        nodes = [Identity(0, "n1", 8, 28, "sha256:1", "3.12.3", ray, "0.9.1", "", "10.0.0.1")]
        banner.print_cluster(settings, nodes)
        banner.print_usage(settings, nodes)
        return capsys.readouterr().out

    return say


def test_with_tokens_the_dashboard_is_on_the_loopback_and_nothing_warns(said: Said) -> None:
    output = said("2.60.0")

    assert "dashboard   ssh -N -L 32002:127.0.0.1:32002 n1, then http://localhost:32002" in output
    assert "ray job submit --address=http://127.0.0.1:32002 " in output
    assert "warning" not in output


@pytest.mark.parametrize(
    ("ray", "environ", "words"),
    [
        ("2.44.1", {}, "Ray 2.44.1 has no tokens, so every account that reaches the ports of these nodes"),
        ("2.44.1", {"VERLJOB_DASHBOARD": "1"}, "the dashboard is on nevertheless"),
        ("2.60.0", {"VERLJOB_TOKEN_FILE": ""}, "VERLJOB_TOKEN_FILE is not set"),
    ],
)
def test_a_cluster_without_authentication_warns_once(said: Said, ray: str, environ: dict[str, str], words: str) -> None:
    (warning,) = [line for line in said(ray, **environ).splitlines() if line.startswith("warning")]

    assert words in warning


@pytest.mark.parametrize(("kind", "warned"), [("reasoned", True), ("others", False), ("ran", False)])
def test_an_image_that_is_not_known_to_train_is_warned_about_in_one_line(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, warned: bool
) -> None:
    facts = tmp_path / "image.json"
    facts.write_text(json.dumps({"state": {"kind": kind, "what": "the parts fit by their metadata"}}))
    monkeypatch.setattr(banner, "IMAGE_FACTS", facts)

    warnings = [line for line in said("2.60.0").splitlines() if line.startswith("warning")]

    text = "warning     no training is known with this image's base and verl: the parts fit by their metadata"
    assert warnings == ([text] if warned else [])


def test_no_line_mentions_a_dashboard_that_is_off(said: Said) -> None:
    output = said("2.44.1")

    assert "dashboard   off" in output
    assert "ssh" not in output
    assert "ray job" not in output
    assert "VERLJOB_DASHBOARD=1" in output
