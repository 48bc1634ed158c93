"""A line is fatal where a process ended badly after it, or where the log does not go on; a warning is no failure."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from verl_node.explain import explain, first_failure

ENTRIES = yaml.safe_load(first_failure.FILE.read_text())
DLERROR = (
    "n1:7:7 [0] NCCL {} NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file or directory"
)
MEMORY = "CUDA out of memory. Tried to allocate 2.00 GiB."
GOES_ON = ("loading the next part", "part 2 scored 0.3", "part 3 scored 0.4", "best part 3", "written to /data/out")
TRACEBACK = 'Traceback (most recent call last):\n  File "/w/a.py", line 1, in f\n    g()\nOddError: what nobody knows'


def log(folder: Path, *rows: str) -> Path:
    path = folder / "job.out"
    path.write_text("\n".join(["loading", *rows, ""]))
    return path


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["id"])
def test_an_entry_knows_the_line_that_is_its_example(entry: dict[str, str]) -> None:
    assert first_failure.bad_end_pattern(restarted=bool(entry.get("restarted"))).search(entry["example"].encode())


@pytest.mark.parametrize(
    "line",
    [
        DLERROR.format("INFO"),
        DLERROR.format("WARN"),
        "2026-01-02 03:04:05.1: W x/dso_loader.cc:64] Could not load x; libx.so: cannot open shared object file",
        "Warning: no NUMA: libnuma.so: cannot open shared object file: No such file or directory",
        "[2026-01-02 03:04:05,1 I 57 57] (raylet) a.cc:1: The actor is dead because its owner has died.",
    ],
)
def test_a_warning_after_which_a_program_goes_on_is_seen_and_not_fatal(line: str, tmp_path: Path) -> None:
    told = explain([log(tmp_path, line, GOES_ON[0])])

    assert told.kind == "none"
    assert [seen.line for seen in told.seen] == [line]


def test_a_warning_that_a_log_ends_with_is_fatal_and_what_is_only_for_information_is_not(tmp_path: Path) -> None:
    assert explain([log(tmp_path, DLERROR.format("WARN"))]).rule == "image-undefined-symbol"
    assert explain([log(tmp_path, DLERROR.format("INFO"))]).kind == "none"


@pytest.mark.parametrize(
    "end",
    [
        *(entry["example"] for entry in ENTRIES),
        TRACEBACK,
        "RuntimeError: NCCL error in: a.cpp:1, unhandled system error",
    ],
)
def test_the_same_warning_is_a_failure_where_a_process_ends_badly_after_it(end: str, tmp_path: Path) -> None:
    assert explain([log(tmp_path, DLERROR.format("WARN"), *GOES_ON, end)]).kind != "none"


def test_a_line_that_is_no_warning_may_be_followed_by_its_own_words_and_not_by_more(tmp_path: Path) -> None:
    assert explain([log(tmp_path, MEMORY, *GOES_ON[: first_failure.FEW])]).kind == "memory"
    assert explain([log(tmp_path, MEMORY, *GOES_ON)]).kind == "none"


def test_what_is_wound_up_after_a_line_is_no_life(tmp_path: Path) -> None:
    wound_up = (
        "closing the pool",
        "n1:7:7 [0] NCCL INFO comm 0x1 - Abort COMPLETE",
        "srun: Terminating job step 7.1",
        "wandb: x",
    )

    assert explain([log(tmp_path, MEMORY, *wound_up * 3)]).kind == "memory"


def test_a_traceback_that_reaches_the_top_is_fatal_whatever_others_still_write(tmp_path: Path) -> None:
    assert explain([log(tmp_path, TRACEBACK, *GOES_ON)]).line == "OddError: what nobody knows"


def test_a_traceback_that_a_logger_wrote_is_not_where_its_program_went_on(tmp_path: Path) -> None:
    record, later = "2026-01-02 03:04:05,1 ERROR trial 1 failed", "2026-01-02 03:04:06,1 INFO trial 2 scored 0.3"

    told = explain([log(tmp_path, record, TRACEBACK, later)])
    assert (told.kind, [seen.line for seen in told.seen]) == ("none", ["OddError: what nobody knows"])
    assert explain([log(tmp_path, record, TRACEBACK)]).kind == "unknown"
    assert explain([log(tmp_path, record, TRACEBACK, later, TRACEBACK.replace("Odd", "Other"))]).kind == "unknown"


def test_a_chain_of_exceptions_is_one_record(tmp_path: Path) -> None:
    record, later = "2026-01-02 03:04:05,1 ERROR trial 1 failed", "2026-01-02 03:04:06,1 INFO trial 2 scored 0.3"
    chain = "\n\nThe above exception was the direct cause of the following exception:\n\n"

    assert explain([log(tmp_path, record, TRACEBACK + chain + TRACEBACK.replace("Odd", "Other"), later)]).kind == "none"


def test_workers_that_torchrun_started_again_did_not_end_the_job(tmp_path: Path) -> None:
    failed = next(entry["example"] for entry in ENTRIES if entry.get("restarted"))

    assert explain([log(tmp_path, TRACEBACK, failed, "rank 0 attempt 1")]).kind == "none"
    assert explain([log(tmp_path, TRACEBACK, failed)]).kind == "unknown"
    assert explain(
        [log(tmp_path, TRACEBACK, failed, "rank 0 attempt 1", TRACEBACK, failed, "x.ChildFailedError:")]
    ).line


def test_a_job_that_is_known_to_have_failed_has_its_warning_for_an_answer(tmp_path: Path) -> None:
    assert explain([log(tmp_path, DLERROR.format("WARN"), *GOES_ON)], failed=True).rule == "image-undefined-symbol"


def test_what_was_seen_has_its_place_and_no_secrets(tmp_path: Path) -> None:
    secret = "hf_" + "Ab1" * 11
    path = log(tmp_path, f"{DLERROR.format('WARN')} HF_TOKEN={secret}", GOES_ON[0])
    told = explain([path])

    assert (told.seen[0].file, told.seen[0].number, told.seen[0].rule) == (str(path), 2, "image-undefined-symbol")
    assert secret not in told.json() + told.text()
    assert f"seen, not fatal: {path}:2 (image-undefined-symbol): n1:7:7 [0] NCCL WARN" in told.text()
