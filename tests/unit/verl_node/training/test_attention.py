"""flash-attn of an environment: the distribution decides, not the module's name."""

from __future__ import annotations

from pathlib import Path

import pytest
from verl_node.training import attention


@pytest.mark.parametrize(
    ("distribution", "installed"), [("flash_attn-2.8.3", True), ("flash_attn_4-4.0.0b5", False), ("", False)]
)
def test_flash_attn_4_does_not_count_though_it_has_the_module_flash_attn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, distribution: str, installed: bool
) -> None:
    (tmp_path / "flash_attn" / "cute").mkdir(parents=True)
    (tmp_path / "flash_attn" / "__init__.py").touch()
    if distribution:
        name, _, version = distribution.rpartition("-")
        info = tmp_path / f"{distribution}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)

    assert attention.flash_attn_installed() is installed


def test_a_trainer_without_verls_models_keeps_its_configuration() -> None:
    keys = [each.key for each in attention.overrides_without_flash_attn("0.9", ["critic.model.path"])]

    assert keys == ["critic.model.use_remove_padding", "critic.model.override_config.attn_implementation"]
    assert attention.overrides_without_flash_attn("0.9", []) == []


@pytest.mark.parametrize(("series", "fused"), [("0.8", False), ("0.9", True)])
def test_log_probabilities_are_fused_where_verl_would_loop_over_tokens(series: str, fused: bool) -> None:
    overrides = attention.overrides_without_flash_attn(series, ["actor_rollout_ref.model.path", "critic.model.path"])

    assert [each.key for each in overrides if "fused" in each.key] == [
        "actor_rollout_ref.model.use_fused_kernels"
    ] * fused
