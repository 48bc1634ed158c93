"""Secrets are masked in everything that the supervisor writes: by value and by pattern."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import pytest
from verl_node.reporting import masking
from verl_node.reporting.control_characters import printable
from verl_node.reporting.events import Journal, to_file
from verl_node.reporting.node_dirs import NodeDirs
from verl_node.reporting.verdict import Verdict, write_by_rename
from verl_node.settings.settings import Settings
from verl_node.supervision import child as supervision_child
from verl_node.supervision import stacks
from verl_node.supervision.child import Process
from verl_node.training.metrics import console_record

from tests.support.paths import CHECKOUT

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
        ("HTTP_PROXY=jo:hunter2@proxy:3128", "HTTP_PROXY=***@proxy:3128"),
        ("https_proxy=jo:p%21w@proxy", "https_proxy=***@proxy"),
        ("MYSQL_PWD=hunter2hunter2", "MYSQL_PWD=***"),
        ("DB_PASS=hunter2!hunter", "DB_PASS=***"),
        ("PASSWORD=hunter2#", "PASSWORD=***"),
        ("DB_PASSWD=correct:horse", "DB_PASSWD=***"),
        ("KEY_PASSPHRASE=correct-horse", "KEY_PASSPHRASE=***"),
        ("LANGFUSE_SECRET_KEY=sk-lf-0123456789", "LANGFUSE_SECRET_KEY=***"),
        ("COMET_KEY=0123456789abcdefgh", "COMET_KEY=***"),
        ("GITHUB_PAT=0123456789abcdefgh", "GITHUB_PAT=***"),
        ("AZURE_CREDENTIALS=0123456789abcdefgh", "AZURE_CREDENTIALS=***"),
        (f"TOKEN={'0' * 20}", "TOKEN=***"),
    ],
)
def test_secrets_are_masked_and_their_surroundings_stay(text: str, seen: str) -> None:
    assert masking.masked(text) == seen


@pytest.mark.parametrize(
    "text",
    [
        "PAD_TOKEN=151643 at http://n1:8265/api",
        "PWD=/home/somebody/verl-experiments",
        "OLDPWD=/home/somebody/verl-experiments INIT_PWD=/home/somebody/verl",
        "PATH=/usr/local/bin:/usr/bin:/bin PYTHONPATH=/opt/verljob/python",
        "GOOGLE_APPLICATION_CREDENTIALS=/home/somebody/key.json SSH_KEY=~/.ssh/id_ed25519.pub",
        "KEY=a-value-of-a-configuration BYPASS=everything-that-there-is",
        "data.prompt_key=prompt_of_the_data_set pad_token=<|finetune_right_pad_id|>",
        "SORT_KEY=total_length HTTP_PROXY=http://proxy:3128/ NO_PROXY=localhost,10.0.0.0/8",
        "MASTER_ADDR=n1 NCCL_SOCKET_IFNAME=eth0 RAY_PORT=6379 CUDA_VISIBLE_DEVICES=0,1,2,3",
        "ssh://git@github.com:22/a/b.git torch 2.8.0 at tcp://10.0.0.1:29500",
    ],
)
def test_text_that_is_not_secret_stays(text: str) -> None:
    assert masking.masked(text) == text


def test_output_and_files_have_no_secrets(tmp_path: Path) -> None:
    said = io.StringIO()
    print(f"training says {KNOWN}", file=masking.Masking(said))
    journal = Journal("n1")
    journal.set_sink(to_file(tmp_path / "events.jsonl"))
    journal.note(KNOWN)
    write_by_rename(tmp_path / "config.json", json.dumps({"overrides": [f"a.b={KNOWN}"]}))

    written = [said.getvalue(), *(path.read_text() for path in tmp_path.iterdir())]

    assert len(written) == 3
    assert all("***" in text and "known" not in text for text in written)


def test_the_secrets_of_a_job_are_its_token_and_the_variables_of_the_secrets_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("f" * 64)

    settings = Settings.from_env(
        {"VERLJOB_TOKEN_FILE": str(tmp_path / "token"), "VERLJOB_SECRET_NAMES": "HF_TOKEN,GONE", "HF_TOKEN": "canary"}
    )

    assert settings.secrets == ("f" * 64, "canary")


def test_the_shell_reads_the_same_patterns_and_has_the_same_limits() -> None:
    text = (CHECKOUT / "slurm" / "lib" / "node" / "secrets.sh").read_text()
    word = re.search("SECRETS_WORD='(.*)'", text)
    library = f"VERLJOB_HOME={CHECKOUT}; source {CHECKOUT}/slurm/lib/node/secrets.sh"
    script = f"set -Eeuo pipefail; {library}; printf '%s' \"$SECRETS_PATTERN\""

    assert subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout == "|".join(
        masking.PATTERNS
    )
    assert len(masking.PATTERNS) == 12
    assert f"SECRETS_SHORTEST={masking.SHORTEST} " in text
    assert f"SECRETS_LONGEST={masking.LONGEST} " in text
    assert word is not None
    assert re.fullmatch(f"[{word[1]}]+", masking.WORD)
    assert {character for character in map(chr, range(256)) if re.match(f"[{word[1]}]", character)} == {*masking.WORD}


def test_no_secret_contains_a_character_at_which_text_is_cut() -> None:
    """Where a text is cut at such a place, no secret is cut."""
    chance = random.Random(0)  # noqa: S311  texts, no secret
    pieces = ["hf_", "A" * 40, "TOKEN=", "_KEY=", "://u:", "proxy=u:", "@", "PASSWORD=", "sk-", "-", "/", "=", ":", "."]
    between = [chr(code) for code in range(32, 256) if chr(code) not in masking.WORD]
    for _ in range(2000):
        text = "".join(chance.choice(pieces + between) for _ in range(12))
        assert all(set(found[0]) <= set(masking.WORD) for found in masking._PATTERN.finditer(text))


MEBIBYTE = 1 << 20
REPEATED = (
    "A", "_", "ACGT", "://", "hf_", "[", "{", "A=", "sk-", "eyJ", "a:", "://a:", "://a:b", "://a:a=", "TOKEN=", "_KEY=",
    "TOKEN=a/", "proxy=", "proxy=a", "proxy=a:", "h", "gh", "ghp_", "github_pat_", "PASSWORD=", "_PASS=", " ", "0",
    "AKIA", "CREDENTIAL", "\n", f"hf_{'x' * 34} ", "://u:p@h ", "X_TOKEN=0123456789abcdef0 ", f"{KNOWN} ",
)  # fmt: skip
GIL_S = 0.2


def test_a_mebibyte_of_anything_is_masked_within_a_second() -> None:
    """The test allows two seconds on a busy machine."""
    took = {}
    for word in REPEATED:
        text = (word * (MEBIBYTE // len(word) + 1))[:MEBIBYTE]
        began = time.process_time()
        masking.masked(text)
        took[word] = time.process_time() - began

    assert {word: seconds for word, seconds in took.items() if seconds > 2} == {}


@contextmanager
def ticking() -> Iterator[list[float]]:
    """A thread that records this process's CPU time every 5 ms, whenever it gets the interpreter's lock."""
    over, ticks = threading.Event(), [time.process_time()]

    def tick() -> None:
        while not over.wait(0.005):
            ticks.append(time.process_time())

    thread = threading.Thread(target=tick)
    thread.start()
    yield ticks
    over.set()
    thread.join()
    ticks.append(time.process_time())


@pytest.mark.parametrize("word", ["A", "ACGT", "ghp_", "proxy=", "step:1 - a:np.a(", "step:1 - ", "hf_"])
def test_a_line_of_a_mebibyte_blocks_no_other_thread(word: str) -> None:
    """By the real path of a line of training. Other threads may wait 0.2 s; the test allows twice that, of CPU time.

    The best of three counts, since on a busy machine the thread may be late by itself.
    """
    assert min(longest_wait(word) for _ in range(3)) < 2 * GIL_S


def longest_wait(word: str) -> float:
    line = (word * (MEBIBYTE // len(word) + 1))[: MEBIBYTE - 1]
    said = io.StringIO()

    def take(text: str) -> None:
        print(text, flush=True)  # noqa: T201
        console_record(text)

    async def scenario() -> None:
        argv = [sys.executable, "-c", f"print(({word!r} * {MEBIBYTE})[:{MEBIBYTE - 1}])"]
        await (await Process.start(argv, os.environ, on_line=take)).ended()

    with ticking() as ticks, redirect_stdout(masking.Masking(said)):
        asyncio.run(scenario())

    assert said.getvalue().replace("\n", "") == line
    return max(after - before for before, after in zip(ticks, ticks[1:]))


SECRETS = ["0123456789abcdef" * 4, f"hf_{'0123456789abcdef' * 2}01", KNOWN]
BEFORE, AFTER = "plain words ", "; plain words"


def parts(text: str) -> set[str]:
    """All substrings of eight characters."""
    return {text[at : at + 8] for at in range(len(text) - 7)}


@pytest.mark.parametrize("secret", SECRETS, ids=["token", "hf", "with blanks"])
@pytest.mark.parametrize("unbroken", [False, True])
def test_a_line_that_is_too_long_is_cut_outside_secrets(
    secret: str, unbroken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    masking.remember(SECRETS)
    limit = 16 << 10
    monkeypatch.setattr(supervision_child, "_LINE_LIMIT", limit)
    lines: list[str] = []
    filled = "'z' * 9000" if unbroken else "'a b ' * 2250"
    script = (
        f"for before in range({limit} - 9000 - 80, {limit} - 9000 + 3):\n"
        f"    print('x,' * (before // 2) + 'x' * (before % 2) + {filled} + {secret!r} + {filled} * 2)"
    )

    async def scenario() -> None:
        argv = [sys.executable, "-c", script]
        await (await Process.start(argv, os.environ, on_line=lines.append)).ended()

    asyncio.run(scenario())
    shown = [masking.masked(line) for line in lines]

    assert len(shown) > 83 * 2
    assert max(map(len, shown)) < limit + 2 * masking.LONGEST
    assert not parts(secret) & parts("".join(shown))
    assert "".join(shown).count("***") == 83


@pytest.mark.parametrize("secret", SECRETS, ids=["token", "hf", "with blanks"])
def test_the_beginning_and_the_rest_of_a_text_show_no_part_of_a_secret(secret: str) -> None:
    masking.remember(SECRETS)
    for at in range(300 - len(secret) - 5, 305):
        text = (BEFORE * 30)[:at] + secret + AFTER * 40
        assert len(masking.beginning(text, 300)) <= 301
        assert not parts(secret) & parts(masking.beginning(text, 300)), at
        assert not parts(secret) & parts(masking.rest(secret[at % len(secret) :] + AFTER * 700)), at


def test_a_word_that_may_be_a_secret_of_another_process_is_not_cut() -> None:
    assert masking.beginning(f"{BEFORE}{'0' * 64}{AFTER}", 40) == f"{BEFORE}…"


@pytest.mark.parametrize("secret", SECRETS, ids=["token", "hf", "with blanks"])
def test_the_last_line_of_a_node_shows_no_part_of_a_secret(secret: str, tmp_path: Path) -> None:
    masking.remember(SECRETS)
    folder = tmp_path / "nodes" / "1-n2"
    folder.mkdir(parents=True)
    for size in (200, 4096, 8192):
        for after in range(size - len(secret) - 3, size + 3):
            (folder / "node.log").write_text(f"x\n{BEFORE * 900}{secret}{(AFTER * 900)[:after]}")
            said = NodeDirs(tmp_path, ["n1", "n2"]).last_line(1)
            assert said
            assert not parts(secret) & parts(said), after


def test_the_command_lines_with_the_stacks_are_masked(tmp_path: Path) -> None:
    path = tmp_path / "stacks-1.txt"
    secret = f"hf_{'x' * 34}"
    argv = ["python", "-c", "import time; time.sleep(60)", "x" * 200 + " word", f"--token={secret}", KNOWN]
    with subprocess.Popen(argv, executable=sys.executable) as child:  # any length of its path would be cut with it
        while not Path(f"/proc/{child.pid}/cmdline").read_bytes():  # empty while the kernel starts the program
            time.sleep(0.01)
        asyncio.run(stacks.write(path, {**os.environ, "PATH": str(tmp_path)}))
        child.kill()

    text = path.read_text()
    assert f"== {child.pid} python -c" in text
    assert "word --token=***" in text
    assert "xxx***" not in text
    assert "known" not in text


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\x1b[1;31mred\x1b[0m\tword\nline", "red\tword\nline"),
        ("a\x1b]52;c;aGk=\x07b\x1b]8;;http://x\x1b\\c", "abc"),
        ("a\x9b2Jb\x9d0;title\x9cc\x90q\x1b\\d", "abcd"),
        ("unended \x1b]52;c;aGk= and \x1b[ ", "unended ]52;c;aGk= and [ "),
        ("10%\r20%\r\nend\u2028next\x85last", "10% 20%\nend next last"),
        ("\u202edrow\u202c \u2066i\u2069 \u200fr \x00\x08\x7f", "drow i r "),
        ("äöü — 日本語 ✓", "äöü — 日本語 ✓"),
    ],
)
def test_terminal_control_characters_are_removed(text: str, seen: str) -> None:
    assert printable(text) == seen


def test_verdict_and_output_of_a_node_have_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    cause = "It said \x1b]52;c;aGk=\x07boom\u009b\u202e."
    verdict = Verdict(71, "self", "head", "n1", cause, "\x1b[2J")

    Journal("n1").note(cause)

    assert "cause=It said boom.\nfix=\n" in verdict.text()
    assert verdict.sentence() == "verdict: 71 (head on n1): It said boom. —"
    assert capsys.readouterr().out.endswith("checks: It said boom.\n")
