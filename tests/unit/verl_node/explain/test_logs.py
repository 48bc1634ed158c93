"""Whole logs: of failed jobs that no rule was written from, and of jobs that went well in spite of their noise."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from verl_node.explain import explain, rules

from tests.support.paths import LOGS

LISTS = {name: yaml.safe_load((LOGS / f"{name}.yaml").read_text()) for name in ("untouched", "held_out", "taught")}
APART = ("untouched", "held_out")
TAUGHT = LISTS["taught"]
CLEAN = sorted((LOGS / "clean").glob("*.log"))
NOISY = yaml.safe_load((LOGS / "noisy.yaml").read_text())
RECALL = {"untouched": (42 / 52, 43 / 52), "held_out": (501 / 539, 511 / 539)}
"""Classes and first lines before a line needed more than a rule to be a failure; 2 points of it may be lost."""
GOING_ON = [log for log in CLEAN if not any(end in log.read_text() for end in ("SIGTERM", "verdict: 0"))]


def first_line_with(log: Path, words: str) -> str:
    return next(line for line in log.read_text(errors="replace").splitlines() if words in line)


@pytest.mark.parametrize("failed", [False, True], ids=["as they are", "known to have failed"])
@pytest.mark.parametrize("name", APART)
def test_of_logs_that_no_rule_was_written_from_most_are_explained(
    name: str, failed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    classes, lines, missed = 0, 0, []
    for case in LISTS[name]:
        log = LOGS / name / case["file"]
        told = explain([log], failed=failed)
        right = told.kind == case["class"], told.line in first_line_with(log, case["line"]) and bool(told.line)
        classes, lines = classes + right[0], lines + right[1]
        missed += [f"{case['file']}: {told.kind}, {told.line[:90]}"] if not all(right) else []
    count = len(LISTS[name])
    with capsys.disabled():
        print(f"\n{name}: {classes} of {count} classes, {lines} of {count} first lines")  # noqa: T201
    print("\n".join(missed))  # noqa: T201  pytest shows it when the bar is missed

    assert count >= 20
    assert classes / count >= 0.80
    assert lines / count >= 0.70
    assert classes / count >= RECALL[name][0] - 0.02
    assert lines / count >= RECALL[name][1] - 0.02


@pytest.mark.parametrize("case", TAUGHT, ids=lambda case: case["file"])
def test_a_log_that_taught_something_stays_explained(case: dict[str, str]) -> None:
    log = LOGS / "taught" / case["file"]
    told = explain([log])

    assert told.kind == case["class"]
    assert told.line
    assert told.line in first_line_with(log, case["line"])


@pytest.mark.parametrize("name", APART)
def test_the_logs_kept_apart_are_those_of_their_list_and_are_no_rules_excerpt(name: str) -> None:
    texts = {log.name: log.read_text(errors="replace") for log in (LOGS / name).glob("*.log")}
    others = [case for other, cases in LISTS.items() if other != name for case in cases]

    assert set(texts) == {case["file"] for case in LISTS[name]}
    assert not [(log, rule.id) for log, text in texts.items() for rule in rules.load() if rule.excerpt.strip() in text]
    assert not {case["source"] for case in LISTS[name]} & {rule.source for rule in rules.load()}
    assert not {case["file"] for case in LISTS[name]} & {case["file"] for case in others}


@pytest.mark.parametrize("log", CLEAN, ids=lambda log: log.stem)
def test_a_job_that_went_well_has_no_failure_however_noisy_it_was(log: Path) -> None:
    told = explain([log])

    assert (told.kind, told.line) == ("none", "")


@pytest.mark.parametrize("log", GOING_ON, ids=lambda log: log.stem)
def test_the_noise_before_a_failure_is_not_taken_for_it(log: Path, tmp_path: Path) -> None:
    failure = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"
    noisy = tmp_path / "job.log"
    noisy.write_bytes(log.read_bytes() + f"\nTraceback (most recent call last):\n{failure}\n".encode())

    told = explain([noisy])

    assert (told.kind, told.line) == ("vllm", failure)


def test_there_are_ten_clean_logs_and_each_has_words_of_failures() -> None:
    assert len(CLEAN) >= 10
    for log in CLEAN:
        assert any(word in log.read_text(errors="replace").lower() for word in ("error", "warn", "fail", "exception"))


@pytest.mark.parametrize("case", NOISY, ids=lambda case: case["file"])
def test_no_log_of_a_program_that_ended_well_is_called_a_failure(case: dict[str, str]) -> None:
    log = LOGS / "noisy" / case["file"]
    told = explain([log])

    assert (told.kind, told.line) == ("none", "")


@pytest.mark.parametrize(
    "file", ["ray-tasks.log", "tensorflow-no-cuda.log", "public-resnet-nccl.log", "gpu-restart.log"]
)
def test_what_was_seen_in_it_is_listed_as_not_fatal(file: str) -> None:
    told = explain([LOGS / "noisy" / file])

    assert told.seen
    assert "\nseen, not fatal: " in told.text()
    assert '"seen_not_fatal": [{"rule": ' in told.json()


@pytest.mark.parametrize("case", NOISY, ids=lambda case: case["file"])
def test_a_failure_after_the_noise_is_told(case: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    failure = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"
    noise = (LOGS / "noisy" / case["file"]).read_bytes()
    log.write_bytes(noise + f'\nTraceback (most recent call last):\n  File "/w/a.py", line 1\n{failure}\n'.encode())

    told = explain([log])
    assert (told.kind, told.line) == ("vllm", failure)


@pytest.mark.parametrize("case", NOISY, ids=lambda case: case["file"])
def test_a_noisy_log_of_a_job_that_is_known_to_have_failed_has_an_answer(case: dict[str, str]) -> None:
    told = explain([LOGS / "noisy" / case["file"]], failed=True)

    assert told.kind != "none"
    assert told.number


def test_each_noisy_log_has_its_program_and_how_it_was_run_or_where_it_is_public() -> None:
    assert len(NOISY) >= 20
    assert {case["file"] for case in NOISY} == {log.name for log in (LOGS / "noisy").glob("*.log")}
    for case in NOISY:
        assert case["program"]
        assert case.get("command") or case["source"].startswith("https://github.com/")
