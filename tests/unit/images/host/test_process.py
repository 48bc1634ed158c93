"""Commands: their output is returned, and a failure carries its last lines."""

from __future__ import annotations

import sys

import pytest

from images.errors import CommandFailed
from images.host.process import run


def test_a_command_returns_its_output_and_gets_added_variables() -> None:
    assert run(["sh", "-c", "echo $GREETING"], {"GREETING": "hello"}) == "hello\n"


def test_a_failure_carries_argv_code_and_last_lines() -> None:
    with pytest.raises(CommandFailed, match=r"sh -c .* exited with 3:\nbecause") as failed:
        run(["sh", "-c", "echo because >&2; exit 3"])

    assert (failed.value.argv[0], failed.value.code) == ("sh", 3)


def test_a_missing_command_fails_with_127() -> None:
    with pytest.raises(CommandFailed, match="exited with 127"):
        run(["/no/such/command"])


def test_a_command_that_exceeds_its_timeout_is_killed() -> None:
    with pytest.raises(CommandFailed, match=r"exited with 124:\nno end after 0\.1 s"):
        run([sys.executable, "-c", "import time; time.sleep(60)"], timeout_s=0.1)
