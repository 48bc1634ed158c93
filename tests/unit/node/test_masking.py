"""Secrets are masked in everything that the supervisor writes: by value, and by what they look like."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from verl_node import masking
from verl_node.events import Journal, to_file
from verl_node.result import write_by_rename
from verl_node.settings import Settings

ROOT = Path(__file__).parents[3]
KNOWN = 'a "known" secret'


@pytest.fixture(autouse=True)
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_known", set())
    masking.remember([KNOWN, "short"])


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (f"before {KNOWN} after", "before *** after"),
        (json.dumps({"cause": KNOWN}), '{"cause": "***"}'),
        ("a short word stays", "a short word stays"),
        (f"login with hf_{'x' * 34}.", "login with ***."),
        ("HTTPS_PROXY=http://jo:p%21w@proxy:3128/", "HTTPS_PROXY=http://***@proxy:3128/"),
        (f"env WANDB_API_KEY={'0' * 40} set", "env WANDB_API_KEY=*** set"),
        ("PAD_TOKEN=151643 at http://n1:8265/api", "PAD_TOKEN=151643 at http://n1:8265/api"),
    ],
)
def test_secrets_are_masked_and_their_surroundings_stay(text: str, seen: str) -> None:
    assert masking.masked(text) == seen


def test_what_is_printed_and_what_is_filed_has_none(tmp_path: Path) -> None:
    said = io.StringIO()
    print(f"training says {KNOWN}", file=masking.Masking(said))
    journal = Journal("n1")
    journal.hand_over_to(to_file(tmp_path / "events.jsonl"))
    journal.note(KNOWN)
    write_by_rename(tmp_path / "config.json", json.dumps({"overrides": [f"a.b={KNOWN}"]}))

    written = [said.getvalue(), *(path.read_text() for path in tmp_path.iterdir())]

    assert len(written) == 3
    assert all("***" in text and "known" not in text for text in written)


def test_the_secrets_of_a_job_are_its_token_and_what_came_by_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("f" * 64)

    settings = Settings.from_env(
        {"VERLJOB_TOKEN_FILE": str(tmp_path / "token"), "VERLJOB_SECRET_NAMES": "HF_TOKEN,GONE", "HF_TOKEN": "canary"}
    )

    assert settings.secrets == ("f" * 64, "canary")


def test_the_shell_knows_the_same_patterns() -> None:
    text = (ROOT / "slurm" / "lib" / "secrets.sh").read_text()
    (listed,) = re.findall(r"SECRETS_PATTERNS=\(\n(.*?)\n\)", text, re.DOTALL)

    assert tuple(re.findall(r"'([^']*)'", listed)) == masking.PATTERNS
    assert f"SECRETS_SHORTEST={masking.SHORTEST} " in text
