"""The shell masks as Python does, in linear time, and prints logs without control characters."""

from __future__ import annotations

import random
import re
import resource
import string
import subprocess

import pytest
from verl_node.reporting import masking

from tests.support.shell.rig import CHECKOUT, Rig

MEBIBYTE = 1 << 20
TOKEN = "0123456789abcdef" * 4
BLANKS = "a secret with blanks"
REPEATED = (
    "A", "_", "ACGT", "://", "hf_", "[", "{", "A=", "sk-", "eyJ", "a:", "://a:", "://a:b", "TOKEN=", "_KEY=",
    "TOKEN=a/", "proxy=", "proxy=a", "proxy=a:", "h", "ghp_", "github_pat_", "PASSWORD=", "_PASS=", " ", "0", "AKIA",
    "\n", "word ",
    f"hf_{'x' * 34} ", f"hf_{'x' * 34},hf_{'y' * 34};", "http://u:p@h ", "http://u:pass@", "X_TOKEN=0123456789abcdef0 ",
    "PASSWORD=hunter2hunter2\n", "HTTP_PROXY=me:you@host ", f"{TOKEN} ", TOKEN,
)  # fmt: skip
MASK = f"""source "$VERLJOB_HOME/slurm/lib/node/secrets.sh"
B='{BLANKS}' SECRET_NAMES=(B) LOCAL_TOKEN={TOKEN}
secrets::mask"""
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def masked(rig: Rig, text: str) -> str:
    environment = {**rig.environment, "VERLJOB_HOME": str(CHECKOUT)}
    argv = ["bash", "-c", f"set -Eeuo pipefail\n{MASK}"]
    done = subprocess.run(argv, env=environment, input=text.encode(), capture_output=True, check=True, timeout=60)
    assert not done.stderr
    return done.stdout.decode()


def of_children_s() -> float:
    """CPU time of the processes that ended; the load of the machine affects it less than wall time."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_known", set())
    masking.remember([TOKEN, BLANKS])


def test_a_mebibyte_of_anything_is_masked_within_a_second(rig: Rig) -> None:
    """Also if it is only secrets. The test allows two seconds on a busy machine."""
    took = {}
    for word in REPEATED:
        text = (word * (MEBIBYTE // len(word) + 1))[:MEBIBYTE]
        began = of_children_s()
        shown = masked(rig, text)
        took[word] = of_children_s() - began
        assert TOKEN not in shown
        assert "hf_xx" not in shown

    assert {word: seconds for word, seconds in took.items() if seconds > 2} == {}


def test_thirty_thousand_tokens_are_masked_within_a_second(rig: Rig) -> None:
    began = of_children_s()

    assert masked(rig, f"hf_{'x' * 34} " * 30000) == "*** " * 30000
    assert of_children_s() - began < 2


def test_the_shell_masks_what_python_masks(rig: Rig) -> None:
    chance = random.Random(0)  # noqa: S311  texts, no secret
    pieces = [
        "hf_", " ", "\n", "=", "X_TOKEN=", "_KEY=", "/", "abc", "://", "u:", "p@", "PASSWORD=", "_PASS=", "sk-", "AKIA",
        "-", "_", TOKEN, BLANKS, "é", "{", '"', ",", ".", "&", "some words ", "ghp_", "github_pat_", "HTTP_PROXY=",
        "CREDENTIALS=", "*", "\\", "'", "hf_#", "X_TOKEN=#", "ghp_#", "#", "#", "#",
    ]  # fmt: skip
    for length in [5, 50, 500, 2000] * 10:
        text = "".join(chance.choice(pieces) for _ in range(length))
        text = re.sub("#", lambda _: "".join(chance.choices(string.ascii_letters + string.digits, k=40)), text)
        assert masked(rig, text) == masking.masked(text)


def test_long_secrets_are_masked_whole_and_long_words_stay(rig: Rig) -> None:
    word = "0" * 100_000

    assert masked(rig, f"hf_{'x' * 50_000} end") == "*** end"
    assert masked(rig, f"{word}hf_{'x' * 34} {word}") == f"{word}*** {word}"


SECRETS = [TOKEN, f"hf_{TOKEN[:34]}", BLANKS]


@pytest.mark.parametrize("secret", SECRETS, ids=["token", "hf", "with blanks"])
@pytest.mark.parametrize("filler", ["z", "plain words "], ids=["one word", "words"])
def test_no_part_of_a_secret_shows_where_a_log_is_cut(secret: str, filler: str, rig: Rig) -> None:
    """Here the last 8 KiB of a log are kept, not the last MiB; the masking itself reads pieces of 4 KiB."""
    kept, at = 8192, 12288
    logs = (
        (CHECKOUT / "slurm" / "lib" / "node" / "scratch.sh")
        .read_text()
        .replace("BYTES=$((1024 * 1024)) ", f"BYTES={kept} ")
    )
    (rig.root / "scratch.sh").write_text(logs)
    offsets = [cut + by for cut in (kept, at, 4096) for by in range(-3, len(secret) + 3)]
    for after in offsets:
        text = filler * 30000 + f" {secret}" + (" " + filler * 30000)[:after]
        (rig.root / f"{after}.log").write_text(text)
    loop = 'for file in "$@"; do scratch::_print_masked "$file" > "$file.kept"; done'
    files = " ".join(str(rig.root / f"{after}.log") for after in offsets)
    secrets = f"B='{BLANKS}' SECRET_NAMES=(B) LOCAL_TOKEN={TOKEN}"
    done = rig.source("node/secrets", f"source {rig.root}/scratch.sh; {secrets}; set -- {files}; {loop}")

    assert done.returncode == 0, done.stderr
    for after in offsets:
        text = (rig.root / f"{after}.log.kept").read_text()
        assert kept - len(secret) - 1 <= len(text) <= kept
        assert not parts(secret) & parts(text), after
        assert ("***" in text) == (after < kept) or kept - len(secret) <= after


def parts(text: str) -> set[str]:
    """All substrings of eight characters."""
    return {text[at : at + 8] for at in range(len(text) - 7)}


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("VERLJOB_DB_PASS", "hunter2!hunter2", True),
        ("WANDB_PWD", "hunter2hunter2", True),
        ("HF_OTHER_KEY", "0123456789abcdef01", True),
        ("HF_PAT", "0123456789abcdef01", True),
        ("RAY_CREDENTIALS", "0123456789abcdef01", True),
        ("HTTP_PROXY", "jo:hunter2@proxy:3128", True),
        ("https_proxy", "http://jo:hunter2@proxy:3128", True),
        ("HTTP_PROXY", "proxy:3128", False),
        ("VERLJOB_SIGNATURE_KEY", "/home/jo/keys/cosign.pub", False),
        ("VERLJOB_SORT_KEY", "total_length", False),
        ("VERL_OLD_PWD", "/home/jo/experiments", False),
        ("HF_HUB_PATH", "/home/jo/.cache/huggingface", False),
    ],
)
def test_a_secret_variable_is_passed_by_file(name: str, value: str, secret: bool, rig: Rig) -> None:
    script = "secrets::find; printf '%s\\n' ${SECRET_NAMES[@]+\"${SECRET_NAMES[@]}\"}"
    done = rig.source("node/spec/environment node/secrets", script, **{name: value})

    assert done.returncode == 0, done.stderr
    assert (name in done.stdout.split()) == secret


ESCAPED = (
    "red\x1b[31m \x1b]52;c;aGk=\x07 c1\u009b2J del\x7f bidi\u202e iso\u2066 mark\u200f line\u2028 10%\r20% tab\t — é"
)


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "<unset>"])
@pytest.mark.parametrize(
    "call",
    [
        'log::note "$text"',
        'log::warn "$text"',
        'STAGE="$text"; verdict::set 71 self "$text" "$text"; verdict::sentence',
        'verdict::set 71 self "$text" "$text"; finish::_explain ""',
        'verdict::set 71 self "" ""; printf "%s\\n" "$text" "two" > text; RUNDIR_VERDICT_ID=0 finish::_explain text',
    ],
)
def test_text_from_a_log_is_printed_without_control_characters(call: str, locale: str, rig: Rig) -> None:
    done = rig.source("common/log common/ownership common/verdict launch/finish", call, text=ESCAPED, LC_ALL=locale)

    assert done.returncode == 0, done.stderr
    assert "10% 20% tab\t — é" in done.stdout + done.stderr
    assert FORBIDDEN.search(done.stdout + done.stderr) is None


def test_the_last_line_of_a_job_has_no_escapes_of_a_node(rig: Rig) -> None:
    escapes = "it said \\033]52;c;aGk=\\007boom \\302\\233 end"
    rig.fake("container", rig.container("code=71").replace("as the test says", escapes))

    done = rig.node(1)

    assert "boom  end" in (rig.run_dir / "nodes" / "1-n2" / "node.log").read_text() + done.stdout
    assert FORBIDDEN.search((rig.run_dir / "nodes" / "1-n2" / "node.log").read_text()) is None
