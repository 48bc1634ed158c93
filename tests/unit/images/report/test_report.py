"""The report of a build: steps that ran, the causes of cache misses, and sizes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from images.contents import layer_sizes
from images.context.inputs import BASE
from images.report import report, store
from images.report.report import EVICTED, FIRST, Report, StepReport, changed_words, miss_causes, step_reports
from tests.unit.images.report.test_build_log import LOGS, read

DOCKERFILE = (LOGS / "two-stages.txt").read_text()
INPUTS = {BASE: "1", "steps/a": "1", "toolkit/b": "1", "toolkit/c": "1"}
LAST = {"dockerfile": DOCKERFILE, "inputs": INPUTS}
HIT, MISS = True, False
FINAL = "stage-1"


def causes(*cached: bool, dockerfile: str = DOCKERFILE, **moved: str) -> list[str]:
    """The causes of the final stage's cache misses if only ``moved`` differs from the last build."""
    inputs: Mapping[str, str] = {**INPUTS, **{name.replace("_", "/"): value for name, value in moved.items()}}
    return miss_causes(FINAL, [HIT, *cached], dockerfile, inputs, LAST)[1:]


def test_the_first_build_of_a_name_has_no_other_cause() -> None:
    assert miss_causes(FINAL, [HIT, MISS, HIT, MISS], DOCKERFILE, INPUTS, None) == ["", FIRST, "", FIRST]


def test_a_changed_file_is_the_cause_of_the_step_that_reads_it_and_of_those_below() -> None:
    assert causes(HIT, MISS, MISS, toolkit_b="2") == ["", "toolkit/b", "follows step 3"]


def test_several_changed_files_are_counted() -> None:
    moved = {f"toolkit_{name}": "2" for name in "bcdef"}

    assert causes(HIT, MISS, MISS, **moved)[1] == "toolkit/b, toolkit/c, toolkit/d and 2 more"


def test_a_changed_instruction_is_shown_with_old_and_new_words() -> None:
    edited = DOCKERFILE.replace("sleep 1.2", "sleep 2.5")

    assert causes(MISS, MISS, MISS, dockerfile=edited) == ["1.2 → 2.5", "follows step 2", "follows step 2"]


def test_a_changed_base_is_the_cause_of_the_first_miss() -> None:
    moved = miss_causes(FINAL, [HIT, MISS, MISS, MISS], DOCKERFILE, {**INPUTS, BASE: "2"}, LAST)

    assert moved == [BASE, "follows step 1", "follows step 1", "follows step 1"]


def test_a_changed_stage_is_the_cause_of_the_step_that_reads_it() -> None:
    edited = DOCKERFILE.replace("echo one", "echo two")

    assert causes(HIT, HIT, MISS, dockerfile=edited)[2] == "stage one"


def test_a_changed_setting_above_a_step_is_a_cause() -> None:
    edited = DOCKERFILE.replace("ENV A=1", "ENV A=2")

    assert causes(HIT, MISS, MISS, dockerfile=edited)[1] == "a setting above it"


def test_a_miss_without_a_change_is_an_evicted_layer() -> None:
    assert causes(MISS, MISS, MISS) == [EVICTED, "follows step 2", "follows step 2"]


def test_the_first_changed_words_are_shown() -> None:
    assert changed_words("pip install ray==1 verl", "pip install ray==2 verl more") == "ray==1 → ray==2; nothing → more"


def test_steps_get_the_sizes_of_their_own_layers() -> None:
    found = step_reports(read("docker-20.10-edit"), DOCKERFILE, {**INPUTS, "toolkit/b": "2"}, LAST)
    history = [
        {"CreatedBy": text, "Size": size}
        for text, size in [("USER 0", 0), ("RUN a", 7), ("ENV", 0), ("COPY", 9), ("RUN b", 5)]
    ]

    sized = report.with_sizes(found, DOCKERFILE, history)

    assert [(step.text[:4], step.size, step.cause) for step in sized if step.stage == FINAL] == [
        ("FROM", 0, ""),
        ("RUN ", 7, ""),
        ("COPY", 9, "toolkit/b"),
        ("RUN ", 5, "follows step 3"),
    ]


def test_the_history_of_buildah_gives_the_same_sizes() -> None:
    found = step_reports(read("docker-20.10-edit"), DOCKERFILE, INPUTS, None)
    entries = [
        ("#(nop) USER 0", 0),
        ("--mount=a b", 7),
        ("#(nop) ENV A=1", 0),
        ("#(nop) COPY dir:1 in /b/", 9),
        ("b", 5),
    ]

    sized = report.with_sizes(
        found, DOCKERFILE, [{"CreatedBy": f"/bin/sh -c {text}", "Size": size} for text, size in entries]
    )

    assert [step.size for step in sized if step.stage == FINAL] == [0, 7, 9, 5]


MADE = Report(
    name="team/verl.cpu:1",
    image="sha256:1",
    ended="2026-11-21T00:00:00Z",
    seconds=12.34,
    other_s=0.5,
    engine="docker 20.10",
    base="debian:1",
    base_size=117_000_000,
    size=150_000_000,
    before=149_000_000,
    steps=[
        StepReport("stage-0", "FROM ${BASE}", 0.0, cached=False),
        StepReport("stage-0", "RUN pip install a", 0.0, cached=True, size=32_000_000),
        StepReport("stage-0", "COPY <toolkit> /opt", 0.4, cached=False, cause="toolkit/b", size=1_000_000),
    ],
    places=[("/opt/a", 32_000_000)],
    dockerfile=DOCKERFILE,
    inputs=INPUTS,
)


def test_the_summary_has_steps_causes_and_sizes() -> None:
    assert store.summary(MADE).splitlines() == [
        "team/verl.cpu:1: 1 of 2 steps ran in 12.3 s; 150 MB, 33.0 MB over its base, +1.0 MB since the last build",
        "     0.4 s     1.0 MB  COPY <toolkit> /opt  (toolkit/b)",
    ]


class TextParser(HTMLParser):
    """Collects the text of an HTML page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.found.append(data.strip())


def test_text_json_and_html_have_the_same_content(tmp_path: Path) -> None:
    text = store.write(MADE, tmp_path)
    page = TextParser()
    page.feed((tmp_path / "team_verl.cpu_1.html").read_text())
    content = json.loads((tmp_path / "team_verl.cpu_1.json").read_text())

    assert {path.name for path in tmp_path.glob("*.*")} == {
        f"team_verl.cpu_1.{kind}" for kind in ("txt", "json", "html")
    }
    for part in ("COPY <toolkit> /opt", "/opt/a", "32.0 MB"):
        assert part in text.read_text()
        assert part in page.found
    assert "ran: toolkit/b" in page.found
    assert content["steps"][2] == asdict(MADE.steps[2])
    assert store.read("team/verl.cpu:1", tmp_path) == content


def test_a_retagged_older_image_gets_its_own_report_again(tmp_path: Path) -> None:
    store.write(MADE, tmp_path)
    store.write(replace(MADE, image="sha256:2", seconds=1.0), tmp_path)
    store.restore(MADE.name, "sha256:1", tmp_path)
    store.restore(MADE.name, "sha256:3", tmp_path)

    restored = store.read(MADE.name, tmp_path)
    assert restored
    assert (restored["image"], restored["seconds"]) == ("sha256:1", 12.34)


def test_inputs_as_json_are_written_unchanged(tmp_path: Path) -> None:
    for name, inputs in (("a", ""), ("b", json.dumps(MADE.inputs))):
        store.write(MADE, tmp_path / name, inputs=inputs)

    assert store.read(MADE.name, tmp_path / "a") == store.read(MADE.name, tmp_path / "b")


def test_simultaneous_builds_of_one_image_all_write_its_report(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        written = pool.map(lambda number: store.write(replace(MADE, name=f"a:{number}"), tmp_path), range(64))

    assert len(list(written)) == 64
    assert not list(tmp_path.rglob("*.json.*"))


def test_reports_are_copied_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refused)
    store.write(MADE, tmp_path)

    own = tmp_path / "images" / f"{MADE.image.rpartition(':')[2]}.json"
    assert own.read_text() == (tmp_path / "team_verl.cpu_1.json").read_text()


def test_a_first_build_has_no_last_report(tmp_path: Path) -> None:
    assert store.read("verl.cpu:1", tmp_path) is None
    assert "since the last" not in store.summary(replace(MADE, before=None))


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    for name, size in {"opt/a/one": 500, "opt/a/two": 300, "opt/b": 100, "etc/c": 50}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / "link").symlink_to("opt")
    return tmp_path


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        (2, [("/opt", 900), ("/etc", 50)]),
        (3, [("/opt/a", 800), ("/opt/b", 100), ("/etc", 50)]),
        (9, [("/opt/a/one", 500), ("/opt/a/two", 300), ("/opt/b", 100), ("/etc/c", 50)]),
    ],
)
def test_the_largest_folders_are_split_without_overlap(layer: Path, shown: int, found: list[tuple[str, int]]) -> None:
    assert layer_sizes.split(layer_sizes.measure(str(layer)), shown) == found
