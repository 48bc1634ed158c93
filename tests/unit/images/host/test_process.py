"""Commands: what they said comes back, and with a failure its last words."""

from __future__ import annotations

import sys

import pytest

from images.errors import CommandFailed
from images.host.process import run


def test_a_command_returns_what_it_said_with_more_in_its_environment() -> None:
    assert run(["sh", "-c", "echo $GREETING"], {"GREETING": "hello"}) == "hello\n"


def test_a_failure_carries_argv_code_and_last_words() -> None:
    with pytest.raises(CommandFailed, match=r"sh -c .* exited with 3:\nbecause") as failed:
        run(["sh", "-c", "echo because >&2; exit 3"])

    assert (failed.value.argv[0], failed.value.code) == ("sh", 3)


def test_a_command_that_is_not_there_ends_with_127() -> None:
    with pytest.raises(CommandFailed, match="exited with 127"):
        run(["/no/such/command"])


def test_a_command_that_does_not_end_is_ended() -> None:
    with pytest.raises(CommandFailed, match=r"exited with 124:\nno end after 0\.1 s"):
        run([sys.executable, "-c", "import time; time.sleep(60)"], timeout_s=0.1)
