"""Parts of explain: prefixes and times of lines, interleaved tracebacks, survived failures, verdicts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from verl_node.explain import explain, outcome
from verl_node.explain.logs import lines, recovery, sources, tracebacks
from verl_node.explain.logs.sources import NothingToRead
from verl_node.reporting.verdict import Verdict, default_class

from tests.support.paths import CHECKOUT

GPU = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
STEP = "(TaskRunner pid=7) step:{} - actor/pg_loss:0.1\n"


def log(folder: Path, text: str, name: str = "job.out") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "line",
    [
        "(WorkerDict pid=12, ip=10.0.0.2) ValueError: x",
        "\x1b[36m(WorkerDict pid=12)\x1b[0m ValueError: x",
        "[rank3]: ValueError: x",
        "[:3]:ValueError: x",
        "(EngineCore_0 pid=1) ERROR 09-03 11:03:37 [core.py:712] ValueError: x",
        "3: ValueError: x",
        "2026-01-02 03:04:05,678 ValueError: x",
        "2026-01-02 03:04:05,678 - verl.main - ERROR - ValueError: x",
        "[2026-01-02 03:04:05 TP0] ValueError: x",
        "ERROR 04-23 00:04:19 multiproc_worker_utils.py:240] ValueError: x",
        "job.train/0 [default0]:[rank0]: ValueError: x",
        "[1,0]<stderr>: ValueError: x",
        "10.0.0.2: ValueError: x",
        "ERROR:    ValueError: x",
        "\u3010 2026-01-02 03:04:05\u3011(Worker pid=1, ip=10.0.0.2) ValueError: x",
    ],
)
def test_prefixes_are_removed(line: str) -> None:
    assert lines.without_prefix(line.encode()).strip() == b"ValueError: x"


@pytest.mark.parametrize(
    ("line", "host"),
    [
        ("(WorkerDict pid=12, ip=10.0.0.2) x", "10.0.0.2"),
        ("srun: error: gpu07: task 3: Killed", "gpu07"),
        ("slurmstepd: error: *** STEP 3.0 ON nid7 CANCELLED AT 2020-07-03T02:59:56 DUE TO TIME LIMIT ***", "nid7"),
        ("gpu2-ru7:2143:2561 [1] include/shm.h:28 NCCL WARN x", "gpu2-ru7"),
        ("ValueError: x", ""),
    ],
)
def test_host_is_read_from_a_line(line: str, host: str) -> None:
    assert lines.host(line.encode()) == host


def test_times_in_several_formats_are_comparable() -> None:
    ray, torch, vllm = (
        b"[2026-03-21 02:07:08,1 E 5 5] x",
        b"[rank0]:[E0321 02:07:09.408271257 P.cpp:607] x",
        b"ERROR 03-21 02:07:10 [a.py:1] x",
    )

    assert lines.last_time(b"nothing") is None
    assert (lines.last_time(b"2026-03-21T02:07:08Z") or 0) == (lines.last_time(ray) or 0)
    assert (lines.last_time(torch) or 0) + 1 == lines.last_time(vllm)


def test_traceback_is_parsed_among_lines_of_other_processes() -> None:
    text = (
        b'(A pid=1) Traceback (most recent call last):\n(B pid=2) step 3\n(A pid=1)   File "a.py", line 1, in f\n'
        b"(B pid=2) ValueError: of another\n(A pid=1)     g()\n(A pid=1) KeyError: 'mine'\n"
    )

    assert tracebacks.root_exception(text, text.find(tracebacks.HEADS[0])) == (
        text.rfind(b"(A"),
        b"(A pid=1) KeyError: 'mine'",
    )


def test_log_may_begin_within_a_traceback(tmp_path: Path) -> None:
    cut = (
        '    raise x\n[rank0]:   File "/w/a.py", line 1, in f\n[rank0]:     g()\n[rank0]: AssertionError\nTraceback (m'
    )
    whole = 'step 1\n  File "/w/a.py", line 1, in f\nKeyError\n'

    assert explain([log(tmp_path, cut)]).line == "[rank0]: AssertionError"
    assert explain([log(tmp_path, whole)]).kind == "none"


def test_traceback_without_indentation_is_parsed(tmp_path: Path) -> None:
    calls = 'File "a.py", line 1, in f\ng(\nFile "b.py", line 2, in g\nraise x\n'
    path = log(tmp_path, f"Traceback (most recent call last):\n{calls}OddError: x\n")

    assert explain([path]).line == "OddError: x"


def test_traceback_in_a_box_is_parsed(tmp_path: Path) -> None:
    box = "╭─── Traceback (most recent call last) ───╮\n│ /w/a.py:7 in main   │\n│ ❱ 7 │   f()  │\n╰───╯\n"
    explanation = explain([log(tmp_path, f"{box}OddError: mine\n")])

    assert explanation.line == "OddError: mine"
    assert [str(call) for call in tracebacks.frames(explanation.traceback)] == ["/w/a.py, line 7, in main"]


@pytest.mark.parametrize(
    "words",
    [
        "Memory access fault by GPU node-2 (Agent handle: 0x63155be5d980) on address (nil). Reason: Unknown.",
        ":0:rocdevice.cpp:3586: Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_EXCEPTION: code: 0x1016",
        "  what():  a native program's last words",
    ],
)
def test_error_of_a_native_program_wins_over_its_abort(words: str, tmp_path: Path) -> None:
    path = log(tmp_path, f"loading\n{words}\nAborted (core dumped)\n")

    assert (explain([path]).kind, explain([path]).line) == ("unknown", words.strip())


def test_last_error_message_before_a_bad_end_is_reported(tmp_path: Path) -> None:
    ended = "srun: error: n1: task 0: Exited with exit code 1\n"
    path = log(tmp_path, f"INFO error=0\nallocation too small: affinity=1\nbye\n{ended}")

    assert (explain([path]).kind, explain([path]).line) == ("unknown", "allocation too small: affinity=1")
    assert explain([log(tmp_path, f"bye\n{ended}")]).line == ended.strip()


def test_final_error_message_is_a_failure_and_an_earlier_one_is_not(tmp_path: Path) -> None:
    error = "odd-tool: failed to bend: Not today"

    assert explain([log(tmp_path, f"starting\n{error}\n\n")]).line == error
    assert explain([log(tmp_path, f"starting\n{error}\ndone\n")]).kind == "none"
    assert explain([log(tmp_path, "starting\nodd-tool: INFO: nothing failed\n")]).kind == "none"
    assert explain([log(tmp_path, "starting\n2026-01-02 03:04:05 W it failed, again in 5 s\n")]).kind == "none"


@pytest.mark.parametrize("last", ["KeyboardInterrupt", "x.SignalException: Process 1 got signal: 15", "SystemExit: 1"])
def test_reaction_to_another_processs_end_is_no_root_cause(last: str) -> None:
    text = f'Traceback (most recent call last):\n  File "a", line 1\n{last}\n'.encode()

    assert tracebacks.root_exception(text, 0) is None


def test_launchers_line_does_not_end_a_traceback(tmp_path: Path) -> None:
    torn = "srun: error: n1: task 0: Exited with exit code 1\n    g()\nsrun: Terminating job step 7.1\n"
    path = log(tmp_path, f'Traceback (most recent call last):\n  File "/w/a.py", line 1, in f\n{torn}OddError: mine\n')

    assert explain([path]).line == "OddError: mine"
    assert len(tracebacks.frames(explain([path]).traceback)) == 1


def test_ignored_exception_is_no_root_cause() -> None:
    text = (
        b'Exception ignored in: <function P.__del__>\nTraceback (most recent call last):\n  File "a"\nValueError: x\n'
    )

    assert tracebacks.root_exception(text, text.find(tracebacks.HEADS[0])) is None


def test_rule_does_not_match_an_ignored_exception(tmp_path: Path) -> None:
    ignored = (
        "Exception ignored in atexit callback: <function dump at 0x7f>\n"
        'Traceback (most recent call last):\n  File "/w/a.py", line 1, in dump\n    f()\n'
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.\n"
    )
    real = ignored.partition("\n")[2].replace("pid 7", "pid 8")

    assert not explain([log(tmp_path, ignored)]).seen
    assert explain([log(tmp_path, ignored + real)]).rule == "memory-loader-killed"
    assert "pid 8" in explain([log(tmp_path, ignored + real)]).line


def test_exception_during_cleanup_is_no_root_cause() -> None:
    tracker = 'Traceback (most recent call last):\n  File "/x/multiprocessing/resource_tracker.py", line 209, in main\n'
    deleted = 'Traceback (most recent call last):\n  File "/x/tracking.py", line 133, in __del__\n    a\n'

    assert tracebacks.root_exception(f"{tracker}KeyError: '/psm_1'\n".encode(), 0) is None
    assert tracebacks.root_exception(f"{deleted}AttributeError: no logger\n".encode(), 0) is None


@pytest.mark.parametrize(
    "begin", ["Unhandled error (suppress with 'X=1'): ray::f()", "ray.exceptions.RayTaskError(E): ray::f()"]
)
def test_rays_heads_begin_a_traceback(begin: str, tmp_path: Path) -> None:
    path = log(tmp_path, f'(A pid=1) {begin}\n(A pid=1)   File "a.py", line 1, in f\n(A pid=1) IndexError: mine\n')

    assert (explain([path]).kind, explain([path]).line) == ("unknown", "(A pid=1) IndexError: mine")


def test_exception_that_a_symptom_rule_matches_is_no_cause(tmp_path: Path) -> None:
    died = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    path = log(
        tmp_path, f'(raylet) A worker died or was killed\nTraceback (most recent call last):\n  File "a"\n{died}'
    )

    assert (explain([path]).rule, explain([path]).number) == ("ray-actor-died", 1)


def test_exception_without_a_traceback_is_a_fallback(tmp_path: Path) -> None:
    path = log(tmp_path, "loading\n(A pid=1) x.y.OddError: what nobody knows\n")
    lived = log(tmp_path, path.read_text() + STEP.format(1), "lived.out")

    assert (explain([path]).kind, explain([path]).number) == ("unknown", 2)
    assert explain([lived]).kind == "none"


def test_logged_exception_counts_unless_it_is_a_warning(tmp_path: Path) -> None:
    line = "(EngineCore pid=7) {} 11-21 09:27:00 [core.py:842] OddError: what nobody knows\n"

    assert explain([log(tmp_path, line.format("ERROR"))]).number == 1
    assert explain([log(tmp_path, line.format("WARNING"))]).kind == "none"


def test_notebooks_traceback_is_parsed(tmp_path: Path) -> None:
    text = (
        "OddError                 Traceback (most recent call last)\n/a/lib/m.py in f(self, x)\n      1 def f():\n"
        "----> 2     g()\n\n17 frames\nOddError: what nobody knows\n"
    )

    assert explain([log(tmp_path, text)]).line == "OddError: what nobody knows"


@pytest.mark.parametrize(
    "line", ["n0:1:2 [0] NCCL INFO x.cc:1 -> 3", "(W pid=1) INFO Parent process exited, terminating"]
)
def test_shutdown_lines_are_no_progress(line: str, tmp_path: Path) -> None:
    path = log(tmp_path, f"{GPU}\n" + f"{line}\n" * 20)

    assert explain([path]).kind == "memory"


def test_wrapped_exception_wins_over_rays_wrapper(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        'Traceback (most recent call last):\n  File "m.py", line 1, in run\n'
        "ray.exceptions.RayTaskError(KeyError): ray::f()\n"
        "  File \"n.py\", line 2, in f\nKeyError: 'reward'\n",
    )

    assert explain([path]).line == "KeyError: 'reward'"
    assert explain([path]).kind == "unknown"


def test_only_failures_after_the_last_step_count(tmp_path: Path) -> None:
    survived = log(tmp_path, f"{GPU}\n{STEP.format(1)}{STEP.format(2)}")
    again = log(tmp_path, f"{GPU}\n{STEP.format(1)}{GPU.replace('2.00', '3.00')}\n", "again.out")

    assert explain([survived]).kind == "none"
    assert "3.00 GiB" in explain([again]).line


BAR = "(TaskRunner pid=7)\x1b[0m  Training Progress: {0:3d}%|███▎      | {1}/4 [00:33<?, ?it/s]\n"


@pytest.mark.parametrize("before", ["", BAR.format(0, 0), BAR.format(50, 2), BAR.format(50, 2) + STEP.format(2)])
def test_progress_bar_drawn_again_on_its_end_is_not_a_step(tmp_path: Path, before: str) -> None:
    last = BAR.format(50, 2) if "50%" in before else BAR.format(0, 0)
    failed = log(tmp_path, f"{before}{GPU}\nExit code 1\n{last if before else ''}")
    survived = log(tmp_path, f"{before}{GPU}\n{BAR.format(75, 3)}", "survived.out")

    assert explain([failed], failed=True).kind == "memory"
    assert explain([survived]).kind == "none"


def test_steps_are_found_across_the_blocks_of_a_long_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_BLOCK_BYTES", 300)
    for padding in range(0, 300, 7):
        text = BAR.format(25, 1) + BAR.format(50, 2) + "x" * padding + f"\n{GPU}\n" + BAR.format(50, 2)
        path = log(tmp_path, text, f"{padding}.out")

        assert recovery.last_step(path) == len(text[: text.index("Training Progress:  50%")].encode())


RAYLET = "[2026-11-25 {},461 E 13 14] (raylet) The raylet exited immediately because one Ray agent failed.\n"
ENGINE = "ERROR 2026-11-25 21:12:48 vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n"


@pytest.mark.parametrize(("raylet", "kind"), [("21:13:01", "vllm"), ("21:12:40", "ray-gcs")])
def test_warning_after_the_first_consequence_of_a_failure_is_not_its_cause(
    tmp_path: Path, raylet: str, kind: str
) -> None:
    log(tmp_path, ENGINE, "nodes/0-n0/node.log")
    log(tmp_path, RAYLET.format(raylet), "nodes/0-n0/ray/raylet.err")

    assert explain([tmp_path], failed=True).kind == kind


LOADS = "loading\nno such widget, using another\nloading\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (LOADS + "widget: could not open /x\nwidget: failed to begin\ngood bye\n", "widget: could not open /x"),
        (LOADS + "good bye\n", "no such widget, using another"),
        ("loading\nloaded\n\n", "loaded"),
    ],
)
def test_failed_job_is_explained_by_its_last_errors_or_its_end(tmp_path: Path, text: str, line: str) -> None:
    quiet = log(tmp_path, text)

    assert explain([quiet]).kind == "none"
    explanation = explain([quiet], failed=True)
    assert (explanation.kind, explanation.line) == ("unknown", line)


def test_survived_error_does_not_explain_a_later_failure(tmp_path: Path) -> None:
    explanation = explain([log(tmp_path, "could not open /x\n" + STEP.format(1) + "then it stood\n")], failed=True)

    assert explanation.line == "then it stood"


def test_successful_verdict_wins_over_the_failed_flag(tmp_path: Path) -> None:
    well = log(tmp_path, "could not open /x\nverdict: 0 (train on n1): training ended\n")

    assert explain([well], failed=True).kind == "none"


def test_node_that_failed_first_is_reported(tmp_path: Path) -> None:
    log(tmp_path, f"2026-01-01 10:00:09,1 INFO x\n{GPU}\n", "nodes/0-n1/node.log")
    log(tmp_path, "2026-01-01 10:00:02,1 INFO x\nOSError: [Errno 122] Disk quota exceeded\n", "nodes/1-n2/node.log")

    explanation = explain([tmp_path])

    assert (explanation.kind, explanation.host) == ("data", "n2")


def test_rays_logs_are_used_if_main_logs_have_no_cause(tmp_path: Path) -> None:
    log(tmp_path, "ray.exceptions.ActorDiedError: The actor died unexpectedly\n", "nodes/0-n1/node.log")
    log(tmp_path, f"{GPU}\n", "nodes/1-n2/ray/worker-1.err")

    explanation = explain([tmp_path])

    assert (explanation.kind, explanation.host, explanation.consequences) == ("memory", "n2", ("ray-actor-died",))


def test_address_is_replaced_by_the_jobs_host_name(tmp_path: Path) -> None:
    log(tmp_path, f"(W pid=1, ip=10.0.0.2) {GPU}\n", "nodes/0-n1/node.log")
    log(tmp_path, json.dumps({"nodes": [{"host": "n2", "address": "10.0.0.2"}]}), "config.json")

    assert explain([tmp_path]).host == "n2"


def result(folder: Path, code: int, stage: str, cause: str) -> None:
    explanation = {"code": code, "stage": stage, "host": "n1", "cause": cause, "fix": "Do this."}
    log(folder, json.dumps(explanation), "result.json")


def test_sure_verdict_wins_over_logs(tmp_path: Path) -> None:
    log(tmp_path, f"{GPU}\n", "nodes/0-n1/node.log")
    result(tmp_path, 65, "checks", "The recipe is wrong.")

    explanation = explain([tmp_path])

    assert (explanation.kind, explanation.cause, explanation.fix) == ("config", "The recipe is wrong.", "Do this.")


def test_cause_in_a_log_wins_over_a_lost_node(tmp_path: Path) -> None:
    log(tmp_path, 'Traceback (most recent call last):\n  File "a"\nEOFError: x\n', "nodes/0-n1/node.log")
    result(tmp_path, 76, "cluster", "The raylet on n1 was killed.")
    assert explain([tmp_path]).cause == "The raylet on n1 was killed."

    log(tmp_path, f"{GPU}\n", "nodes/0-n1/node.log")
    assert explain([tmp_path]).kind == "memory"


def test_successful_result_has_no_failure(tmp_path: Path) -> None:
    log(tmp_path, f"{GPU}\n", "nodes/0-n1/node.log")
    result(tmp_path, 0, "train", "Training ended with code 0.")

    assert explain([tmp_path]).kind == "none"


def test_verdict_is_read_from_the_last_line(tmp_path: Path) -> None:
    path = log(tmp_path, "verdict: 77 (image on n2): the account may not use docker — add it to the group\n")

    explanation = explain([path])

    assert (explanation.kind, explanation.host, explanation.fix) == ("slurm-container", "n2", "add it to the group")


def test_newest_attempt_of_a_job_is_read(tmp_path: Path) -> None:
    for number in (1, 2, 10):
        log(tmp_path, "x\n", f"attempt-{number}/nodes/0-n1/node.log")

    assert [entry.path.parts[-4] for entry in sources.collect([tmp_path])] == ["attempt-10"]


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [
        ("143 (cluster on n1): the job was ended from outside (scancel or preemption)", "slurm-container"),
        ("69 (join on n2): n2 runs image sha256:1. — Bring the same image.", "ray-gcs"),
        ("76 (cluster on n2): Node n2 was lost: its connection ended without a word.", "ray-gcs"),
    ],
)
def test_verdict_has_a_class(tmp_path: Path, verdict: str, kind: str) -> None:
    assert explain([log(tmp_path, f"verdict: {verdict}\n")]).kind == kind


def test_printed_class_of_the_verdict_is_used(tmp_path: Path) -> None:
    first = "first failure image: n2 runs image sha256:1.\nwhere         n2\n"
    last = "verdict: 69 (join on n2): n2 runs image sha256:1. — Bring the same image.\n"

    assert explain([log(tmp_path, first + last)]).kind == "image"
    assert explain([log(tmp_path, f"first failure memory: another\n{last}")]).kind == "ray-gcs"


def test_missing_log_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NothingToRead, match="expected a log"):
        explain([tmp_path / "nowhere"])


def test_secrets_in_explanations_are_masked(tmp_path: Path) -> None:
    secret = "hf_" + "Ab1" * 11
    explanation = explain([log(tmp_path, f"{GPU} HF_TOKEN={secret}\n")])

    assert secret not in explanation.json() + explanation.text()
    assert "***" in explanation.line


def test_json_has_its_documented_keys(tmp_path: Path) -> None:
    explanation = json.loads(explain([log(tmp_path, f"{GPU}\n")]).json())

    assert list(explanation) == ["class", "cause", "host", "file", "line", "fix", "references", "seen_not_fatal"]
    assert explanation["line"] == GPU
    assert explanation["references"][0] == "docs/troubleshooting.md#memory-gpu"


def test_large_log_is_read_completely_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from verl_node.explain.logs import scan

    monkeypatch.setattr(scan, "PART_BYTES", 1 << 20)
    noise = "(W pid=1) INFO generated 17 tokens, 3 errors so far\n" * 60_000
    path = log(tmp_path, f"{noise}{GPU}\n")

    assert explain([path], processes=2).line == GPU
    assert explain([path], processes=1).number == 60_001


def test_time_limit_reports_the_unread_size(tmp_path: Path) -> None:
    explanation = explain([log(tmp_path, f"{GPU}\n")], limit_s=0.0)

    assert explanation.unread_bytes == len(GPU) + 1
    assert "not read" in explanation.text()


CODES = (0, 64, 65, 66, 69, 70, 71, 75, 76, 77, 93, 143, 137, 1)
STAGES = (
    "launch",
    "image",
    "container",
    "checks",
    "head",
    "join",
    "cluster",
    "data",
    "model",
    "rollout",
    "train",
    "hang",
    "lead",
)


def test_shell_and_python_classify_verdicts_equally() -> None:
    library = CHECKOUT / "slurm" / "lib" / "common" / "verdict.sh"
    classify = 'VERDICT=([code]=$code [stage]=$stage); verdict::classify; echo "${VERDICT[class]}"'
    script = f"source {library}; while read -r code stage; do {classify}; done"
    cases = [(code, stage) for code in CODES for stage in STAGES]
    lines_of_cases = "".join(f"{code} {stage}\n" for code, stage in cases)
    done = subprocess.run(["bash", "-euc", script], input=lines_of_cases, capture_output=True, text=True, check=True)

    assert done.stdout.split() == [default_class(code, stage) for code, stage in cases]


@pytest.mark.parametrize(("given", "expected"), [({"class": "memory"}, "memory"), ({}, "ray-gcs")])
def test_class_of_a_verdict_defaults_to_code_and_stage(given: dict[str, str], expected: str, tmp_path: Path) -> None:
    explanation = {"code": 75, "stage": "join", "host": "n1", "cause": "It is late.", "fix": "", **given}
    (tmp_path / "result.json").write_text(json.dumps(explanation))

    found = outcome.find_verdict([tmp_path], [])

    assert found
    assert found.kind == expected


def test_verdict_of_the_head_counts_without_result_json(tmp_path: Path) -> None:
    verdict = Verdict(75, "self", "join", "n2", "n2 never connected.", "Requeue.", "memory")
    log(tmp_path, verdict.text(), "nodes/0-n1/verdict")
    log(tmp_path, "", "nodes/1-n2/verdict")

    found = outcome.find_verdict([tmp_path], [])

    assert found
    assert (found.code, found.host, found.kind, found.cause) == (75, "n2", "memory", "n2 never connected.")
    assert found.file == str(tmp_path / "nodes" / "0-n1" / "verdict")


@pytest.mark.parametrize("text", ["", "code=\n", "code=x\nstage=join\n", "stage=join\n"])
def test_verdict_file_without_a_code_is_no_verdict(text: str, tmp_path: Path) -> None:
    log(tmp_path, text, "nodes/0-n1/verdict")

    assert outcome.find_verdict([tmp_path], []) is None


def test_last_line_matches_the_format_of_launch_sh() -> None:
    library = (CHECKOUT / "slurm" / "lib" / "common" / "verdict.sh").read_text()

    assert (
        'local text="verdict: ${VERDICT[code]} (${VERDICT[stage]} on ${VERDICT[host]}): ${VERDICT[cause]}"' in library
    )
    assert outcome._LAST_LINE.search("verdict: 76 (cluster on n2): it was lost — see there".encode())
