"""The display of running builds, and the commands that it shows."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
import time

import pytest
from rich.console import Console

from images.errors import CommandFailed, ImageError
from images.host.process import Commands
from images.report import progress
from images.report.build_log import BuildLog

STEP = "#6 [stage-1 2/4] RUN pip install verl"


def feed(display: progress.Progress, name: str, *lines: str) -> None:
    log = BuildLog()
    for line in lines:
        log.feed(line)
        display.line(name, line, log)


def test_plain_shows_the_whole_output_of_one_build_on_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    feed(progress.choose("plain", ["verl.cpu:1"]), "verl.cpu:1", STEP, "#6 0.1 Collecting verl")

    assert capfd.readouterr() == ("", f"{STEP}\n#6 0.1 Collecting verl\n")


def test_plain_shows_each_step_of_several_builds_once_with_the_images_name(capfd: pytest.CaptureFixture[str]) -> None:
    display = progress.choose("plain", ["a:1", "long:1"])
    feed(display, "a:1", STEP, "#6 0.1 Collecting verl", "#6 DONE 1.0s")
    display.end("long:1", "FAILED: one\ntwo")

    assert capfd.readouterr().err.splitlines() == [
        "a:1     [stage-1 2/4] RUN pip install verl",
        "long:1  FAILED: one",
        "long:1  two",
    ]


def test_the_live_table_has_a_row_per_image_with_its_current_step() -> None:
    display = progress.LiveTable(["a:1", "b:1", "c:1"])
    feed(display, "a:1", STEP)
    display.end("b:1", "unchanged\nmore")
    screen = io.StringIO()
    Console(file=screen, width=80).print(display.display.get_renderable())

    rows = [line.split() for line in screen.getvalue().splitlines()]
    assert rows[0] == ["a:1", "0", "s", *["[stage-1", "2/4]", "RUN", "pip", "install", "verl"]]
    assert rows[1:] == [["b:1", "unchanged"], ["c:1", "waiting"]]


def test_the_live_table_is_followed_by_the_results(capfd: pytest.CaptureFixture[str]) -> None:
    screen = io.StringIO()
    with progress.LiveTable(["a:1"], screen) as display:
        display.end("a:1", "a:1: 1 of 2 steps ran\n  report r.txt")

    assert "1 of 2 steps ran" in screen.getvalue()
    assert capfd.readouterr().err == "a:1: 1 of 2 steps ran\n  report r.txt\n"


def test_quiet_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    feed(progress.choose("quiet", ["a:1"]), "a:1", STEP)

    assert capfd.readouterr() == ("", "")


def test_auto_is_plain_without_a_terminal() -> None:
    assert type(progress.choose("auto", ["a:1"])) is progress.PlainLog
    assert type(progress.choose("auto", ["a:1", "b:1"])) is progress.StepLines


def test_an_unknown_display_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(
        ImageError, match="--progress=fancy is not a valid display: pass one of auto, live, plain, quiet"
    ):
        progress.choose("fancy", [])


def test_every_line_is_passed_on_and_a_failure_has_the_last_ones() -> None:
    lines: list[str] = []

    with pytest.raises(CommandFailed, match="exited with 3:\nout\nhello") as failed:
        Commands().watch(["sh", "-c", "echo out; echo $WHO >&2; exit 3"], {"WHO": "hello"}, lines.append)

    assert lines == ["out", "hello"]
    assert failed.value.code == 3


def test_one_call_terminates_all_commands_also_later_ones() -> None:
    commands, began, begun = Commands(), threading.Event(), time.monotonic()
    failed: list[int] = []

    def watch() -> None:
        try:
            commands.watch(["sh", "-c", "echo up; exec sleep 60"], {}, lambda _: began.set())
        except CommandFailed as ended:
            failed.append(ended.code)

    thread = threading.Thread(target=watch)
    thread.start()
    assert began.wait(10)
    commands.terminate()
    thread.join(10)
    watch()

    assert failed == [-15, -15]
    assert time.monotonic() - begun < 30


def test_a_failing_listener_leaves_no_command_running() -> None:
    pids: list[int] = []

    def listen(line: str) -> None:
        pids.append(int(line))
        raise ValueError(line)

    with pytest.raises(ValueError, match=r"\d"):
        Commands().watch(
            [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"], {}, listen
        )
    assert subprocess.run(["ps", "-p", str(pids[0])], capture_output=True, check=False).returncode == 1
