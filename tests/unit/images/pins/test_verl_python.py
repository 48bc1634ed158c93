"""Code of verl that a Python cannot run: grammar and annotations of the files that a training imports."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping

import pytest

from images.catalog import verl_releases
from images.host.paths import VERL_PYTHON
from images.pins import verl_python

ACTOR = """
from typing import Tuple
class Actor:
    def compute_log_prob(self, data):
        size: int | None = len(data)
        def micro_batches(data) -> Tuple[list, list | None]:
            return data, None
        return micro_batches(data), size
"""


def wheel(files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def lines(text: str, python: tuple[int, int] = (3, 9)) -> list[str]:
    return list(verl_python.unusable("f.py", text, python))


def test_annotation_of_an_inner_function_is_evaluated_at_each_call() -> None:
    assert lines(ACTOR) == ["f.py:6: `Tuple[list, list | None]` needs Python 3.10, at each call"]
    assert lines(ACTOR, (3, 10)) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(x: int | str = 1): ...", ["f.py:1: `int | str` needs Python 3.10, at each import"]),
        ("from __future__ import annotations\ndef f(x: int | str): ...", []),
        ("x: int | None = None", ["f.py:1: `int | None` needs Python 3.10, at each import"]),
        ("def f():\n    x: int | None = None", []),
        ("from pydantic import BaseModel\nclass A(BaseModel):\n    x: int | None = None",
         ["f.py:3: `int | None` needs Python 3.10, at each import"]),
        ("from __future__ import annotations\nclass A(BaseModel):\n    x: int | None = None",
         ["f.py:3: `int | None` needs Python 3.10, at each import"]),
        ("flags = a | b", []),
        ("match x:\n    case 1: ...", ["f.py:2: Pattern matching is only supported in Python 3.10 and greater"]),
    ],
)  # fmt: skip
def test_annotations_that_python_evaluates_are_found(text: str, found: list[str]) -> None:
    assert lines(text) == found


def test_only_files_that_a_training_with_the_rollout_imports_count() -> None:
    bad = "def f(x: int | str): ..."
    files = {
        "verl/__init__.py": "",
        "verl/trainer/__init__.py": "",
        "verl/trainer/main_ppo.py": "def main():\n    from verl.workers.fsdp_workers import Worker",
        "verl/workers/__init__.py": "",
        "verl/workers/fsdp_workers.py": "from . import actor\nfrom verl.workers import megatron_workers",
        "verl/workers/actor/__init__.py": "from .dp_actor import Actor",
        "verl/workers/actor/dp_actor.py": ACTOR,
        "verl/workers/megatron_workers.py": bad,
        "verl/workers/rollout/sglang_rollout/sglang_rollout.py": bad,
        "verl/models/other.py": bad,
    }

    found = verl_python.find(wheel(files), ["3.9", "3.10"])

    actor = "verl/workers/actor/dp_actor.py:6: `Tuple[list, list | None]` needs Python 3.10, at each call"
    rollout = "verl/workers/rollout/sglang_rollout/sglang_rollout.py:1: `int | str` needs Python 3.10, at each import"
    assert found == {"3.9": {"vllm": [actor], "sglang": [actor, rollout]}}


def test_every_release_with_metadata_has_a_result() -> None:
    assert set(json.loads(VERL_PYTHON.read_text(encoding="utf-8"))) == set(verl_releases.known())
