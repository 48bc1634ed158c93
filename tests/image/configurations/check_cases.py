"""Runs inside the image: checks every case of cases.yaml and prints the findings as JSON."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow
import yaml
from pyarrow import parquet
from verl_node.configuration import check, verl_validation
from verl_node.configuration.facts import Facts
from verl_node.configuration.finding import error, errors
from verl_node.errors import NodeError
from verl_node.training import recipe, releases

HERE = Path("/cases")
QWEN2_7B = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584,
    "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
    "max_position_embeddings": 32768, "tie_word_embeddings": False, "rope_theta": 1000000.0,
}  # fmt: skip
SCALED = {"type": "yarn", "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
MIXTURE = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 2048,
    "num_hidden_layers": 48, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "qwen2-7b": QWEN2_7B,
    "yarn": {**QWEN2_7B, "rope_scaling": SCALED},
    "mixture": MIXTURE,
}


def write_inputs() -> None:
    """Write the models' config.json and a data file with 32 rows."""
    for name, config in MODELS.items():
        (HERE / name).mkdir()
        (HERE / name / "config.json").write_text(json.dumps(config))
    parquet.write_table(pyarrow.table({"prompt": ["1 + 1"] * 32}), HERE / "rows.parquet")


def check_case(case: dict[str, Any]) -> list[str]:
    """Return the findings of `python3 -m verl_node.configuration` as sentences."""
    verl, model = case.get("verl", "0.9.1"), case.get("model", "qwen2-7b")
    try:
        training = recipe.make_training(
            recipe.load(Path("/recipes") / f"{case.get('recipe', 'gsm8k_grpo')}.yaml"), case["with"], verl_version=verl,
            nodes=case.get("nodes", 2), gpus_per_node=case.get("gpus", 8), run_dir=Path("/run"), data_dir=Path("/data"),
            model=str(HERE / model) if model else None,
        )  # fmt: skip
    except NodeError as failure:
        return [error("", failure.cause, failure.fix).sentence()]
    facts = Facts(**case.get("facts", {}))
    inspection = check.check_command(training.argv, releases.load(verl).choices, facts)
    findings = [*inspection.findings, *inspection.verl_findings()]
    if inspection.config is not None and not any(errors(findings)):
        findings += check.check_inputs(inspection.config, facts)
    return [finding.sentence() for finding in findings]


write_inputs()
yaml.SafeLoader = yaml.CSafeLoader  # type: ignore[misc,assignment]  # used by OmegaConf; only faster
kinds = yaml.safe_load(Path(__file__).with_name("cases.yaml").read_text())
cases = {name: case for kind in kinds.values() for name, case in kind.items()}
with ProcessPoolExecutor(2) as pool:  # a composition takes Hydra half a second
    findings = dict(zip(cases, pool.map(check_case, cases.values(), chunksize=4)))
registered = {key: verl_validation.registered_values(key) for key in verl_validation.REGISTRIES}
print(json.dumps({"findings": findings, "registered": registered}))  # noqa: T201
