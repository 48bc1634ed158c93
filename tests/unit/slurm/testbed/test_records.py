"""The lines that tell of a job are made from records of a real one (recorded/: verl 0.9.1 on two rehearsal nodes)."""

from __future__ import annotations

from slurm.testbed import demo
from tests.support.paths import RECORDED

RUN_DIR = RECORDED / "run_dir"
EVENTS = demo.parse((RUN_DIR / "events.jsonl").read_text())
STEPS = demo.parse((RUN_DIR / "metrics.jsonl").read_text())


def test_a_step_is_described_with_seconds_reward_and_gradient() -> None:
    assert demo.describe(STEPS[0]) == "train      step 1, 52.2 s, reward 0.3125, grad norm 0.4899"


def test_a_step_with_validation_is_described_with_it() -> None:
    assert ", validation 0." in demo.describe_step(STEPS[3])


def test_the_end_of_a_phase_is_described_with_host_and_seconds() -> None:
    told = [demo.describe(event) for event in EVENTS]

    assert "head       n1: done in 5.1 s" in told


def test_the_beginning_of_a_short_phase_is_not_printed() -> None:
    assert demo.describe(EVENTS[0]) == ""


def test_the_beginning_of_training_is_printed() -> None:
    assert "train      n1: begins" in [demo.describe(event) for event in EVENTS]


def test_an_error_is_described() -> None:
    event = {"phase": "join", "host": "n2", "event": "error", "message": "the head is gone"}

    assert demo.describe(event) == "join       n2: error: the head is gone"


def test_the_last_state_of_a_progress_bar_is_described() -> None:
    event = {"phase": "model", "host": "n1", "event": "note", "message": "\rshards: 0%\rshards: 100%"}

    assert demo.describe(event) == "model      n1: shards: 100%"


def test_an_incomplete_last_line_is_ignored() -> None:
    assert demo.parse('{"step": 1}\n{"st') == [{"step": 1}]


def test_a_phase_lasts_as_long_as_on_its_slowest_node() -> None:
    seconds = demo.phase_seconds(EVENTS)

    assert list(seconds) == ["checks", "join", "head", "cluster", "data", "model", "train"]
    assert seconds["model"] == 19.528
