"""A line is fatal if a process ended badly after it, or if the log does not continue; a warning is no failure."""

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
ORDINARY = ("loading the next part", "part 2 scored 0.3", "part 3 scored 0.4", "best part 3", "written to /data/out")
TRACEBACK = 'Traceback (most recent call last):\n  File "/w/a.py", line 1, in f\n    g()\nOddError: what nobody knows'


def log(folder: Path, *rows: str) -> Path:
    path = folder / "job.out"
    path.write_text("\n".join(["loading", *rows, ""]))
    return path


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["id"])
def test_entry_matches_its_example(entry: dict[str, str]) -> None:
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
def test_warning_before_ordinary_lines_is_not_fatal(line: str, tmp_path: Path) -> None:
    explanation = explain([log(tmp_path, line, ORDINARY[0])])

    assert explanation.kind == "none"
    assert [seen.line for seen in explanation.seen] == [line]


def test_final_warning_is_fatal_and_final_information_is_not(tmp_path: Path) -> None:
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
def test_warning_before_a_bad_end_is_a_failure(end: str, tmp_path: Path) -> None:
    assert explain([log(tmp_path, DLERROR.format("WARN"), *ORDINARY, end)]).kind != "none"


def test_error_may_be_followed_by_few_ordinary_lines(tmp_path: Path) -> None:
    assert explain([log(tmp_path, MEMORY, *ORDINARY[: first_failure.FEW])]).kind == "memory"
    assert explain([log(tmp_path, MEMORY, *ORDINARY)]).kind == "none"


def test_shutdown_lines_are_not_ordinary(tmp_path: Path) -> None:
    shutdown = (
        "closing the pool",
        "n1:7:7 [0] NCCL INFO comm 0x1 - Abort COMPLETE",
        "srun: Terminating job step 7.1",
        "wandb: x",
    )

    assert explain([log(tmp_path, MEMORY, *shutdown * 3)]).kind == "memory"


def test_uncaught_traceback_is_fatal_before_lines_of_other_processes(tmp_path: Path) -> None:
    assert explain([log(tmp_path, TRACEBACK, *ORDINARY)]).line == "OddError: what nobody knows"


def test_logged_traceback_is_not_fatal_if_the_program_continued(tmp_path: Path) -> None:
    record, later = "2026-01-02 03:04:05,1 ERROR trial 1 failed", "2026-01-02 03:04:06,1 INFO trial 2 scored 0.3"

    explanation = explain([log(tmp_path, record, TRACEBACK, later)])
    assert (explanation.kind, [seen.line for seen in explanation.seen]) == ("none", ["OddError: what nobody knows"])
    assert explain([log(tmp_path, record, TRACEBACK)]).kind == "unknown"
    assert explain([log(tmp_path, record, TRACEBACK, later, TRACEBACK.replace("Odd", "Other"))]).kind == "unknown"


def test_chained_exceptions_are_one_record(tmp_path: Path) -> None:
    record, later = "2026-01-02 03:04:05,1 ERROR trial 1 failed", "2026-01-02 03:04:06,1 INFO trial 2 scored 0.3"
    chain = "\n\nThe above exception was the direct cause of the following exception:\n\n"

    assert explain([log(tmp_path, record, TRACEBACK + chain + TRACEBACK.replace("Odd", "Other"), later)]).kind == "none"


def test_restarted_workers_of_torchrun_are_no_failure(tmp_path: Path) -> None:
    failed = next(entry["example"] for entry in ENTRIES if entry.get("restarted"))

    assert explain([log(tmp_path, TRACEBACK, failed, "rank 0 attempt 1")]).kind == "none"
    assert explain([log(tmp_path, TRACEBACK, failed)]).kind == "unknown"
    assert explain(
        [log(tmp_path, TRACEBACK, failed, "rank 0 attempt 1", TRACEBACK, failed, "x.ChildFailedError:")]
    ).line


def test_failed_job_is_explained_by_its_warning(tmp_path: Path) -> None:
    assert explain([log(tmp_path, DLERROR.format("WARN"), *ORDINARY)], failed=True).rule == "image-undefined-symbol"


def test_seen_lines_have_a_location_and_no_secrets(tmp_path: Path) -> None:
    secret = "hf_" + "Ab1" * 11
    path = log(tmp_path, f"{DLERROR.format('WARN')} HF_TOKEN={secret}", ORDINARY[0])
    explanation = explain([path])

    assert (explanation.seen[0].file, explanation.seen[0].number, explanation.seen[0].rule) == (
        str(path),
        2,
        "image-undefined-symbol",
    )
    assert secret not in explanation.json() + explanation.text()
    assert f"seen, not fatal: {path}:2 (image-undefined-symbol): n1:7:7 [0] NCCL WARN" in explanation.text()
