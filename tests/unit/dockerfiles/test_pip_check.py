"""Comparison of `pip check` before and after a build, with the conflicts of real bases."""

from __future__ import annotations

import pip_check
import pytest

FORMATTER = "vllm 0.6.3+rocm622 has requirement lm-format-enforcer==0.10.6, but you have lm-format-enforcer 0.10.9."
RAY = "vllm 0.9.1 has requirement ray<2.45.0,>=2.10.0, but you have ray 2.52.1."
GONE = "sgl-kernel 0.1 requires Torch_Memory.Saver, which is not installed."


def test_package_and_requirement_are_read_from_both_kinds_of_lines() -> None:
    lines = (
        FORMATTER,
        RAY,
        GONE,
        "a 1.0 has requirement b[c]!=2,>=1.5, but you have b 2.",
        "No broken requirements found.",
    )

    assert [pip_check.required_by(line) for line in lines[:4]] == [
        "lm-format-enforcer",
        "ray",
        "torch-memory-saver",
        "b",
    ]
    assert [pip_check.is_complaint(line) for line in lines] == [True, True, True, True, False]


@pytest.mark.parametrize(
    ("before", "after", "is_new"),
    [
        (RAY, RAY.replace("2.52.1", "2.60.0"), False),
        (RAY.replace("vllm", "VLLM"), RAY, False),
        (RAY, RAY.replace("<2.45.0", "<2.40.0"), True),
        (RAY, RAY.replace("vllm", "sglang"), True),
        (RAY, "vllm 0.9.1 requires ray, which is not installed.", True),
        ("vllm 0.9.1 requires ray, which is not installed.", RAY, False),
        (GONE, "sgl-kernel 0.1 has requirement torch-memory-saver>=2, but you have torch-memory-saver 1.", False),
    ],
)
def test_a_conflict_is_new_by_package_and_requirement(before: str, after: str, is_new: bool) -> None:
    assert pip_check.new([after], [before]) == ([after] if is_new else [])


@pytest.mark.parametrize(
    ("line", "before", "protected", "parts"),
    [
        (
            FORMATTER,
            {"vllm": "0.6.4+rocm621", "lm-format-enforcer": "0.10.9"},
            (),
            (
                "vllm 0.6.3+rocm622, which this build installed in place of 0.6.4+rocm621",
                'lm-format-enforcer = "0.10.6"',
            ),
        ),
        (RAY, {"vllm": "0.9.1"}, (), ("ray 2.52.1, which this build installed.", "meets `ray<2.45.0,>=2.10.0`")),
        (
            "tensordict 0.9.1 has requirement torch>=2.6, but you have torch 2.5.0.",
            {"torch": "2.5.0"},
            ("torch",),
            (
                "tensordict 0.9.1, which this build installed",
                "torch is protected, so choose another version of tensordict",
            ),
        ),
        (
            "vllm 0.9.1 requires ray, which is not installed.",
            {"vllm": "0.9.1", "ray": "2.40"},
            (),
            ("the removal of ray", 'tolerates = ["vllm:ray"]'),
        ),
    ],
)
def test_the_cause_and_the_pin_that_mends_it_are_named(
    line: str, before: dict[str, str], protected: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    now = {"vllm": "0.9.1", "lm-format-enforcer": "0.10.9", "ray": "2.52.1", "torch": "2.5.0", "tensordict": "0.9.1"}
    now = {**now, **({"vllm": "0.6.3+rocm622"} if line == FORMATTER else {})}
    if "not installed" in line:
        del now["ray"]

    text = pip_check.explain(line, before, now, protected)

    assert text.startswith(f"pip check: {line} The cause is ")
    assert [part for part in parts if part not in text] == []


def test_a_tolerated_pair_is_package_and_requirement() -> None:
    assert pip_check.tolerated(FORMATTER, ["verl:numpy", "vLLM:lm_format_enforcer"])
    assert pip_check.tolerated(FORMATTER, ["vllm:.*"])
    assert not pip_check.tolerated(FORMATTER, ["lm-format-enforcer:vllm", "vllm:lm"])
