"""Data sets; the expected rows were made by verl's scripts (examples/data_preprocess at b178a3c, after 0.7)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from verl_node.errors import BadTrainingConfig, InputUnavailable
from verl_node.inputs import data, hub
from verl_node.inputs.data import demo, raw, rows

from tests.support.paths import RECORDED

VERL = RECORDED / "verl"


def rows_of_verl(name: str, split: str) -> list[dict[str, Any]]:
    recorded: list[dict[str, Any]] = json.loads((VERL / name / f"verl-{split}.json").read_text())["rows"]
    return recorded


@pytest.mark.parametrize("split", raw.SPLITS)
@pytest.mark.parametrize("name", ["gsm8k", "math"])
def test_rows_equal_those_of_verls_script(name: str, split: str) -> None:
    data_set = data.DATA_SETS[name]
    assert data_set.origin is not None
    files = raw.local(data_set.origin, VERL)
    assert files is not None
    made = data_set.rows(split, raw.read(files[split]))
    assert made == rows_of_verl(name, split)
    assert [list(row) for row in made] == [list(row) for row in rows_of_verl(name, split)]


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"\boxed{1} then \boxed{\frac{a}{\sqrt{2}}}.", r"\frac{a}{\sqrt{2}}"),
        (r"so $\boxed 7$ it is", "7"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"an \fbox{3} does not count", None),
        (r"cut \boxed{1 + {2}", None),
        ("nothing", None),
    ],
)
def test_answer_of_a_math_solution_is_its_last_box(solution: str, answer: str | None) -> None:
    assert rows.math_answer(solution) == answer


def test_row_without_an_answer_is_named() -> None:
    with pytest.raises(InputUnavailable, match="Row 1 of gsm8k's test"):
        rows.gsm8k("test", [{"question": "?", "answer": "#### 1"}, {"question": "?", "answer": "one"}])
    with pytest.raises(InputUnavailable, match="Row 0 of math's train"):
        rows.math("train", [{"problem": "?", "solution": "one"}])


@pytest.mark.parametrize("where", ["gsm8k/main", "gsm8k", "openai/gsm8k/main", "main"])
def test_raw_files_are_found_in_a_copy_or_a_clone(tmp_path: Path, where: str) -> None:
    folder = tmp_path / where
    folder.mkdir(parents=True)
    for split in raw.SPLITS:
        (folder / f"{split}.jsonl").write_bytes((VERL / "gsm8k" / "main" / f"{split}.jsonl").read_bytes())
    origin = data.DATA_SETS["gsm8k"].origin
    assert origin is not None
    assert raw.local(origin, tmp_path) == {split: [folder / f"{split}.jsonl"] for split in raw.SPLITS}


def test_raw_files_of_another_data_set_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "gsm8k").symlink_to(VERL / "math" / "data")
    origin = data.DATA_SETS["gsm8k"].origin
    assert origin is not None
    assert raw.local(origin, tmp_path) is None


def test_missing_raw_data_exits_with_66_and_names_both_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(repository: str, folder: str) -> Path:
        raise InputUnavailable(f"{repository}: https://hub.example does not answer.", fix="")

    monkeypatch.setattr(hub, "data_set", silent)
    with pytest.raises(InputUnavailable) as seen:
        data.ensure("gsm8k", tmp_path / "data", tmp_path / "nothing")
    assert seen.value.code == 66
    assert f"not under {tmp_path / 'nothing'}" in seen.value.cause
    assert "https://hub.example does not answer" in seen.value.cause
    assert "VERLJOB_DATA_SOURCE" in seen.value.fix


def test_unreachable_hub_is_reported_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert "http://127.0.0.1:9 does not answer" in hub._unreachable()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert hub._unreachable() == "HF_HUB_OFFLINE is set"


def test_unknown_data_set_exits_with_65_and_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(BadTrainingConfig, match="there are gsm8k, math, demo"):
        data.ensure("imagenet", tmp_path)


def test_demo_data_is_deterministic_and_correct() -> None:
    raw_rows = list(demo.raw_rows("train"))
    assert raw_rows == list(demo.raw_rows("train"))
    assert len(raw_rows) == demo.SIZES["train"]
    for row, made in zip(raw_rows, rows.gsm8k("train", raw_rows)):
        first, second = (int(word) for word in row["question"].split() if word.isdigit())
        assert made["reward_model"]["ground_truth"] == str(first + second)
        assert made["data_source"] == "openai/gsm8k"
