"""Parsed output of docker 20.10.24 (BuildKit, plain progress) and buildah 1.28.2 for the Dockerfile two-stages.txt."""

from __future__ import annotations

import pytest

from images.report.build_log import BuildahLog, BuildLog
from tests.support.paths import RECORDED

LOGS = RECORDED / "build_log"


def read(name: str) -> BuildLog:
    log = BuildLog()
    for line in (LOGS / f"{name}.txt").read_text().splitlines():
        log.feed(line)
    return log


def test_the_steps_of_a_stage_are_in_order_with_their_times() -> None:
    log = read("docker-20.10")

    assert [(step.index, step.text[:16], step.seconds) for step in log.of_stage("stage-1")] == [
        (2, "RUN --mount=type", 2.8),
        (3, "COPY toolkit/ /o", 0.1),
        (4, "RUN --mount=type", 1.5),
    ]
    assert [step.index for step in log.of_stage("one")] == [1, 2, 3]


def test_cached_steps_are_marked() -> None:
    steps = read("docker-20.10-edit").of_stage("stage-1")[-3:]

    assert [(step.index, step.cached) for step in steps] == [(2, True), (3, False), (4, False)]


def test_a_failed_step_is_the_current_one_and_has_ended() -> None:
    failed = read("docker-20.10-failed").current

    assert failed
    assert failed.ended
    assert failed.text.endswith("&& false")
    assert str(failed).startswith("[stage-1 2/4] RUN")


def test_context_and_export_are_not_instructions() -> None:
    others = [step.text for step in read("docker-20.10").steps.values() if not step.index]

    assert "exporting to image" in others
    assert "[internal] load build context" in others


@pytest.mark.parametrize(
    ("line", "stage", "index"),
    [
        ("#6 [ 1/11] FROM docker.io/rocm/pytorch:1", "", 1),  # buildx pads, and does not name the only stage
        ("#6 [11/11] RUN true", "", 11),
        ("#6 [stage-1  2/11] RUN true", "stage-1", 2),
        ("#6 [linux/amd64 vllm 2/4] RUN true", "linux/amd64 vllm", 2),
    ],
)
def test_every_form_of_a_steps_name_is_parsed(line: str, stage: str, index: int) -> None:
    log = BuildLog()
    log.feed(line)

    assert [(step.stage, step.index) for step in log.of_stage(stage)] == [(stage, index)]


def test_steps_of_buildah_have_a_stage_and_the_time_to_the_next_step() -> None:
    clock = iter(range(0, 1000, 2))
    log = BuildahLog((LOGS / "two-stages.txt").read_text(), lambda: float(next(clock)))
    for line in (LOGS / "buildah-1.28.txt").read_text().splitlines():
        log.feed(line)

    assert [(step.index, step.count, step.text[:16]) for step in log.of_stage("one")] == [
        (1, 3, "FROM verljob-bas"),
        (2, 3, "WORKDIR /src/one"),
        (3, 3, "RUN echo one > o"),
    ]
    last = log.of_stage("stage-1")
    assert [(step.index, step.text[:8], step.seconds) for step in last[1:]] == [
        (2, "RUN --mo", 2.0),
        (3, "COPY too", 2.0),
        (4, "RUN --mo", 2.0),
    ]
    assert all(step.ended and not step.cached for step in log.steps.values())
    assert str(last[2]) == "[stage-1 3/4] COPY toolkit/ /opt/verljob/"
