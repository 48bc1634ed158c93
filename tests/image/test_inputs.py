"""Data and models as the image makes, fetches and checks them, with its own pyarrow, torch and verl."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from docker import DockerClient

from tests.support.paths import RECORDED, SUPPORT

VERL = RECORDED / "verl"

FAKE_HUB = (SUPPORT / "images" / "fake_hub.py").read_text()

READ = """
import json, sys
from pyarrow import parquet
for path in sys.argv[1:]:
    table = parquet.read_table(path)
    print(json.dumps({"schema": {field.name: str(field.type) for field in table.schema}, "rows": table.to_pylist()}))
"""

# verl's own scorer on the model's answers to unseen questions, sampled as in the rollout.
SCORE = """
import sys
import torch
from pyarrow import parquet
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl.utils.reward_score import default_compute_score

torch.manual_seed(0)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], padding_side="left")
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
rows = parquet.read_table(sys.argv[2]).to_pylist() * 4
prompts = [tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False) for row in rows]
tokens = tokenizer(prompts, return_tensors="pt", padding=True)
output = model.generate(**tokens, do_sample=True, temperature=1.0, top_k=0, max_new_tokens=32)
output = output[:, tokens.input_ids.shape[1]:]
answers = tokenizer.batch_decode(output, skip_special_tokens=True)
scores = [default_compute_score(row["data_source"], answer, row["reward_model"]["ground_truth"])
          for row, answer in zip(rows, answers)]
print(sum(scores) / len(scores))
"""


class Inside:
    """Runs commands in containers of one image, as this account, with one host folder and no network."""

    def __init__(self, daemon: DockerClient, image: str, shared: Path) -> None:
        self.daemon = daemon
        self.image = image
        self.shared = shared

    def __call__(self, *command: str, **env: str) -> tuple[int, str]:
        """Exit code and standard output."""
        container = self.daemon.containers.run(
            self.image,
            list(command),
            detach=True,
            environment={"HOME": "/tmp", "USER": "someone", **env},  # noqa: S108 - the container's own
            network_mode="none",
            user=f"{os.getuid()}:{os.getgid()}",
            volumes={
                str(self.shared): {"bind": str(self.shared), "mode": "rw"},
                str(VERL): {"bind": str(VERL), "mode": "ro"},
            },
        )
        try:
            code = container.wait(timeout=180)["StatusCode"]
            return code, container.logs(stdout=True, stderr=False).decode()
        finally:
            container.remove(force=True)

    def prepare(self, *arguments: str, **env: str) -> tuple[int, list[dict[str, Any]]]:
        """Exit code and reports of `verl_node.prepare`."""
        command = ("python3", "-m", "verl_node.prepare", "--data-dir", str(self.shared / "data"), *arguments)
        code, output = self(*command, **env)
        return code, [json.loads(line) for line in output.splitlines()]


@pytest.fixture(scope="module")
def inside(daemon: DockerClient, cpu_image: str, tmp_path_factory: pytest.TempPathFactory) -> Inside:
    return Inside(daemon, cpu_image, tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def prepared(inside: Inside) -> Path:
    """The folder with all data and models that the image can make without a network."""
    names = ("--dataset", "demo", "--dataset", "gsm8k", "--dataset", "math", "--model", "demo:qwen2-tiny")
    code, events = inside.prepare(*names, "--source", str(VERL))
    assert code == 0, events
    return inside.shared / "data"


def stamps(folders: Sequence[Path]) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for folder in folders for path in folder.iterdir()}


def test_parquet_files_have_the_columns_types_and_rows_of_verls_own_scripts(inside: Inside, prepared: Path) -> None:
    files = [(name, split) for name in ("gsm8k", "math") for split in ("train", "test")]
    code, output = inside("python3", "-c", READ, *(str(prepared / name / f"{split}.parquet") for name, split in files))
    assert code == 0
    for (name, split), made in zip(files, output.splitlines()):
        assert json.loads(made) == json.loads((VERL / name / f"verl-{split}.json").read_text())


def test_complete_files_are_left_alone(inside: Inside, prepared: Path) -> None:
    folders = [prepared / "demo", prepared / "gsm8k", prepared / "models" / "qwen2-tiny"]
    before = stamps(folders)
    code, _ = inside.prepare(
        "--dataset", "demo", "--dataset", "gsm8k", "--model", "demo:qwen2-tiny", "--source", str(VERL)
    )
    assert code == 0
    assert stamps(folders) == before


def test_the_demo_model_is_right_and_wrong_by_verls_own_scorer(inside: Inside, prepared: Path) -> None:
    model, data = prepared / "models" / "qwen2-tiny", prepared / "demo" / "test.parquet"
    code, output = inside("python3", "-c", SCORE, str(model), str(data))
    assert code == 0
    assert 0.2 <= float(output) <= 0.6


def test_a_model_without_a_tokenizer_exits_with_66_and_its_folder(inside: Inside, prepared: Path) -> None:
    folder = inside.shared / "no-tokenizer"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((prepared / "models" / "qwen2-tiny" / name).read_bytes())
    code, events = inside.prepare("--model", str(folder))
    assert (code, events[-1]["code"], events[-1]["phase"]) == (66, 66, "model")
    assert str(folder) in events[-1]["cause"]


def test_a_cached_model_is_found_without_the_hub(inside: Inside, prepared: Path) -> None:
    home = inside.shared / "huggingface"
    cached = home / "hub" / "models--Org--Tiny"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("0123456789")
    snapshot = cached / "snapshots" / "0123456789"
    snapshot.mkdir(parents=True)
    for path in (prepared / "models" / "qwen2-tiny").iterdir():
        (snapshot / path.name).write_bytes(path.read_bytes())
    code, events = inside.prepare("--model", "Org/Tiny", HF_HOME=str(home))
    assert code == 0, events
    assert str(snapshot) in events[-1]["message"]


def test_a_data_set_is_fetched_once_and_then_found_in_hf_home(inside: Inside, prepared: Path) -> None:
    env = {"HF_HOME": str(inside.shared / "fetched")}
    hub = ("python3", "-c", FAKE_HUB, str(VERL / "gsm8k"), "openai/gsm8k")
    names = ("--dataset", "gsm8k", "--data-dir", str(inside.shared / "from-hub"))
    code, output = inside(*hub, "python3", "-m", "verl_node.prepare", *names, **env)
    assert code == 0, output
    made = inside.shared / "from-hub" / "gsm8k"
    assert (made / "train.parquet").read_bytes() == (prepared / "gsm8k" / "train.parquet").read_bytes()
    code, _ = inside.prepare("--dataset", "gsm8k", "--data-dir", str(inside.shared / "again"), **env)
    assert code == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("--model", "Qwen/Qwen2-7B-Instruct"), "Qwen/Qwen2-7B-Instruct"), (("--dataset", "gsm8k"), "openai/gsm8k")],
)
def test_a_missing_hub_exits_with_66_within_seconds(inside: Inside, arguments: tuple[str, str], named: str) -> None:
    empty = inside.shared / f"empty{arguments[0]}"
    code, events = inside.prepare(*arguments, "--data-dir", str(empty), HF_HOME=str(empty))
    assert (code, events[-1]["code"]) == (66, 66)
    assert named in events[-1]["cause"]
    assert "https://huggingface.co does not answer" in events[-1]["cause"]
    assert events[-1]["time"] - events[0]["time"] < 30
