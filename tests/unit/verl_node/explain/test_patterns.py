"""A log line may contain anything: no pattern is slow on it, and no control character reaches a terminal."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import verl_node.explain
from verl_node.explain import explain, first_failure, report, rules, stack_parts
from verl_node.ray_node import process
from verl_node.reporting import control_characters, masking
from verl_node.supervision import stacks
from verl_node.training import metrics

SIZE = 60_000
LIMIT_S = 1.0
WORDS = (
    "A", "a", "_", "ACGT", "://", "hf_", "[", "]", "[[", "{", "(", "<", " ", "\t", "0", "1.", "a.", "a/", "/", "\\",
    "'", '"', "-", "=", ":", ",", "a: ", "A b ", "a b", "a_", "a1_", "Aa", "0 ", "[0] ", "(pid=1) ", "x=1, ", "msccl",
    "Error: ", "error ", "failed ", '  File "', "ray::", "node ", " not ", "a\n", " \n", "é",
)  # fmt: skip
ESCAPES = (
    "\x1b[31mred\x1b[0m", "\x1b]52;c;aGk=\x07", "\x1b]0;title\x1b\\", "\x9b2J", "\x9d0;x\x9c", "\x1b(B", "\x1bc", "\r",
    "\x08", "\x7f", "\x00", "\u202e", "\u2066", "\u2069", "\u200f", "\u2028", "\x85", "\x0b",
)  # fmt: skip
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
FAILURE = "OSError: [Errno 122] Disk quota exceeded: 'x'"


def patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Yield every pattern of explain's modules and tables, and of other code that reads each line of a training."""
    names = [f"verl_node.explain.{module.name}" for module in pkgutil.iter_modules(verl_node.explain.__path__)]
    modules = [*map(importlib.import_module, names), masking, metrics, control_characters, process, stacks]
    for module in modules:
        for name, value in vars(module).items():
            yield from ((f"{module.__name__}.{name}", found) for found in compiled(value))
    yield from ((f"rule {rule.id}", rule.pattern) for rule in rules.load())
    yield from ((f"part {part.id}", part.pattern) for part in stack_parts.load())
    yield from (
        (f"endings, restarted={restarted}", first_failure.bad_end_pattern(restarted=restarted))
        for restarted in (False, True)
    )


def compiled(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from compiled(item)


def test_patterns_are_fast_on_every_line() -> None:
    """The limit is one second; the test allows two on a busy machine, and repeats slow ones."""
    texts = [(word * (SIZE // len(word) + 1))[:SIZE] for word in WORDS]
    found = list(patterns())
    slow = []
    for name, pattern in found:
        for text in texts:
            given = text.encode() if isinstance(pattern.pattern, bytes) else text
            if seconds(pattern, given) > LIMIT_S and seconds(pattern, given) > 2 * LIMIT_S:
                slow.append(f"{name} on {text[:10]!r}")
                break

    assert len(found) > 150
    assert slow == []


def seconds(pattern: re.Pattern[Any], text: Any) -> float:
    began = time.process_time()
    pattern.search(text)
    return time.process_time() - began


@pytest.mark.parametrize("word", ["msccl ", "gcs_server ", "ppo_mini_batch_size ", "ptrace ", "Error: ", "wandb "])
def test_very_long_line_is_read_in_time(word: str, tmp_path: Path) -> None:
    """A pattern may take quadratic time on a rule's literals: it is applied to their surroundings only."""
    log = tmp_path / "job.out"
    log.write_text(word * ((1 << 20) // len(word)) + f"\n{FAILURE}\n")
    began = time.monotonic()

    explain([log])

    assert time.monotonic() - began < 10


def escaped(folder: Path) -> str:
    """Return the explanation, as text and JSON, of a run directory with escape sequences everywhere."""
    log = folder / "nodes" / "0-n1" / "node.log"
    log.parent.mkdir(parents=True)
    text = "".join(
        f'Traceback (most recent call last):\n  File "{escape}x.py", line 1, in f\n    g()\n'
        f"OddError: {escape}odd{escape}\n"
        for escape in ("\x1b[31mred", *ESCAPES)
    )
    log.write_bytes(text.encode())
    found = explain([folder], failed=True)
    return f"{found.text()}\n{found.json()}"


def test_explanation_has_no_control_characters(tmp_path: Path) -> None:
    found = escaped(tmp_path)

    assert "OddError: redoddred" in found
    assert "[31m" not in found
    assert FORBIDDEN.search(found) is None
    assert "\\u00" not in found


@pytest.mark.parametrize("escape", ESCAPES, ids=ascii)
def test_explained_verdict_has_no_control_characters(escape: str, tmp_path: Path) -> None:
    fields = {"stage": f"head{escape}", "host": f"n{escape}1", "cause": f"It said {escape}boom{escape}.", "fix": escape}
    (tmp_path / "result.json").write_text(json.dumps({"code": 71, **fields}))
    (tmp_path / "node.log").write_text("nothing\n")

    found = explain([tmp_path])

    assert "boom" in found.cause
    assert FORBIDDEN.search(found.text() + found.json()) is None


def test_explained_rule_has_no_control_characters(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    for escape in ESCAPES:
        log.write_bytes(f"{escape}{FAILURE} {escape}text{escape}\n".encode())
        found = explain([log], failed=True)
        assert FORBIDDEN.search(found.text() + found.json()) is None


def test_secret_with_an_escape_sequence_is_masked() -> None:
    secret = f"hf_{'x' * 17}\x1b[31m{'y' * 17}"

    assert report.clean(f"login with {secret} failed".encode()) == "login with *** failed"


TOKEN = "0123456789abcdef" * 4


@pytest.mark.parametrize("secret", [TOKEN, f"hf_{TOKEN[:34]}"], ids=["token", "hf"])
def test_truncated_line_shows_no_part_of_a_secret(secret: str) -> None:
    """The process does not know the job's secrets, so it never shows a part of a word."""
    for before in range(1850, 2010):
        shown = report.clean(("word " * 500)[:before].encode() + b" " + secret.encode() + b" and more" * 100)
        assert not parts(secret) & parts(shown.replace(TOKEN, "")), before


def parts(text: str) -> set[str]:
    return {text[at : at + 8] for at in range(len(text) - 7)}


@pytest.mark.parametrize("secret", [TOKEN, f"hf_{TOKEN[:34]}"], ids=["token", "hf"])
def test_truncated_log_shows_no_part_of_a_secret(secret: str, tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    for after in range((64 << 10) - 80, (64 << 10) + 10):
        log.write_text("x " * 40000 + secret + ("y " * 40000)[:after])
        found = explain([log], failed=True)
        assert found.line
        assert not parts(secret) & parts(found.text()), after
