"""The parts: prefixes and times of lines, tracebacks between others' lines, what is survived, whose word counts."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from verl_node.explain import explain, outcome
from verl_node.explain.logs import lines, sources, tracebacks
from verl_node.explain.logs.sources import NothingToRead
from verl_node.reporting.verdict import default_class

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
def test_what_stands_before_a_line_is_taken_off(line: str) -> None:
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
def test_a_line_may_name_its_host(line: str, host: str) -> None:
    assert lines.host(line.encode()) == host


def test_times_of_several_writers_can_be_compared() -> None:
    ray, torch, vllm = (
        b"[2026-03-21 02:07:08,1 E 5 5] x",
        b"[rank0]:[E0321 02:07:09.408271257 P.cpp:607] x",
        b"ERROR 03-21 02:07:10 [a.py:1] x",
    )

    assert lines.last_time(b"nothing") is None
    assert (lines.last_time(b"2026-03-21T02:07:08Z") or 0) == (lines.last_time(ray) or 0)
    assert (lines.last_time(torch) or 0) + 1 == lines.last_time(vllm)


def test_a_traceback_is_read_between_the_lines_of_others() -> None:
    text = (
        b'(A pid=1) Traceback (most recent call last):\n(B pid=2) step 3\n(A pid=1)   File "a.py", line 1, in f\n'
        b"(B pid=2) ValueError: of another\n(A pid=1)     g()\n(A pid=1) KeyError: 'mine'\n"
    )

    assert tracebacks.root_exception(text, text.find(tracebacks.HEADS[0])) == (
        text.rfind(b"(A"),
        b"(A pid=1) KeyError: 'mine'",
    )


def test_a_log_that_begins_in_the_midst_of_a_traceback_is_read_from_there(tmp_path: Path) -> None:
    cut = (
        '    raise x\n[rank0]:   File "/w/a.py", line 1, in f\n[rank0]:     g()\n[rank0]: AssertionError\nTraceback (m'
    )
    whole = 'step 1\n  File "/w/a.py", line 1, in f\nKeyError\n'

    assert explain([log(tmp_path, cut)]).line == "[rank0]: AssertionError"
    assert explain([log(tmp_path, whole)]).kind == "none"


def test_a_traceback_whose_indents_are_gone_is_read_as_well(tmp_path: Path) -> None:
    calls = 'File "a.py", line 1, in f\ng(\nFile "b.py", line 2, in g\nraise x\n'
    path = log(tmp_path, f"Traceback (most recent call last):\n{calls}OddError: x\n")

    assert explain([path]).line == "OddError: x"


def test_a_traceback_in_a_box_ends_below_it(tmp_path: Path) -> None:
    box = "╭─── Traceback (most recent call last) ───╮\n│ /w/a.py:7 in main   │\n│ ❱ 7 │   f()  │\n╰───╯\n"
    told = explain([log(tmp_path, f"{box}OddError: mine\n")])

    assert told.line == "OddError: mine"
    assert [str(call) for call in tracebacks.frames(told.traceback)] == ["/w/a.py, line 7, in main"]


@pytest.mark.parametrize(
    "words",
    [
        "Memory access fault by GPU node-2 (Agent handle: 0x63155be5d980) on address (nil). Reason: Unknown.",
        ":0:rocdevice.cpp:3586: Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_EXCEPTION: code: 0x1016",
        "  what():  a native program's last words",
    ],
)
def test_the_last_words_of_a_native_program_are_told_and_not_that_it_ended(words: str, tmp_path: Path) -> None:
    path = log(tmp_path, f"loading\n{words}\nAborted (core dumped)\n")

    assert (explain([path]).kind, explain([path]).line) == ("unknown", words.strip())


def test_before_a_bad_end_the_last_line_that_says_something_is_told(tmp_path: Path) -> None:
    ended = "srun: error: n1: task 0: Exited with exit code 1\n"
    path = log(tmp_path, f"INFO error=0\nallocation too small: affinity=1\nbye\n{ended}")

    assert (explain([path]).kind, explain([path]).line) == ("unknown", "allocation too small: affinity=1")
    assert explain([log(tmp_path, f"bye\n{ended}")]).line == ended.strip()


def test_a_log_that_ends_with_a_programs_complaint_failed_and_one_that_goes_on_after_it_did_not(tmp_path: Path) -> None:
    odd = "odd-tool: failed to bend: Not today"

    assert explain([log(tmp_path, f"starting\n{odd}\n\n")]).line == odd
    assert explain([log(tmp_path, f"starting\n{odd}\ndone\n")]).kind == "none"
    assert explain([log(tmp_path, "starting\nodd-tool: INFO: nothing failed\n")]).kind == "none"
    assert explain([log(tmp_path, "starting\n2026-01-02 03:04:05 W it failed, again in 5 s\n")]).kind == "none"


@pytest.mark.parametrize("last", ["KeyboardInterrupt", "x.SignalException: Process 1 got signal: 15", "SystemExit: 1"])
def test_an_answer_to_anothers_end_is_no_root(last: str) -> None:
    text = f'Traceback (most recent call last):\n  File "a", line 1\n{last}\n'.encode()

    assert tracebacks.root_exception(text, 0) is None


def test_a_launchers_line_in_the_midst_of_a_traceback_does_not_end_it(tmp_path: Path) -> None:
    torn = "srun: error: n1: task 0: Exited with exit code 1\n    g()\nsrun: Terminating job step 7.1\n"
    path = log(tmp_path, f'Traceback (most recent call last):\n  File "/w/a.py", line 1, in f\n{torn}OddError: mine\n')

    assert explain([path]).line == "OddError: mine"
    assert len(tracebacks.frames(explain([path]).traceback)) == 1


def test_an_ignored_exception_is_no_root() -> None:
    text = (
        b'Exception ignored in: <function P.__del__>\nTraceback (most recent call last):\n  File "a"\nValueError: x\n'
    )

    assert tracebacks.root_exception(text, text.find(tracebacks.HEADS[0])) is None


def test_what_a_process_meets_while_it_tidies_up_is_no_root() -> None:
    tracker = 'Traceback (most recent call last):\n  File "/x/multiprocessing/resource_tracker.py", line 209, in main\n'
    deleted = 'Traceback (most recent call last):\n  File "/x/tracking.py", line 133, in __del__\n    a\n'

    assert tracebacks.root_exception(f"{tracker}KeyError: '/psm_1'\n".encode(), 0) is None
    assert tracebacks.root_exception(f"{deleted}AttributeError: no logger\n".encode(), 0) is None


@pytest.mark.parametrize(
    "begin", ["Unhandled error (suppress with 'X=1'): ray::f()", "ray.exceptions.RayTaskError(E): ray::f()"]
)
def test_rays_own_heads_begin_a_traceback(begin: str, tmp_path: Path) -> None:
    path = log(tmp_path, f'(A pid=1) {begin}\n(A pid=1)   File "a.py", line 1, in f\n(A pid=1) IndexError: mine\n')

    assert (explain([path]).kind, explain([path]).line) == ("unknown", "(A pid=1) IndexError: mine")


def test_an_exception_that_a_rule_knows_for_a_consequence_is_no_first_failure(tmp_path: Path) -> None:
    died = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    path = log(
        tmp_path, f'(raylet) A worker died or was killed\nTraceback (most recent call last):\n  File "a"\n{died}'
    )

    assert (explain([path]).rule, explain([path]).number) == ("ray-actor-died", 1)


def test_an_exception_without_a_traceback_is_told_where_nothing_else_is(tmp_path: Path) -> None:
    path = log(tmp_path, "loading\n(A pid=1) x.y.OddError: what nobody knows\n")
    lived = log(tmp_path, path.read_text() + STEP.format(1), "lived.out")

    assert (explain([path]).kind, explain([path]).number) == ("unknown", 2)
    assert explain([lived]).kind == "none"


def test_an_exception_behind_a_loggers_prefix_is_told_and_one_that_it_only_warns_of_is_not(tmp_path: Path) -> None:
    line = "(EngineCore pid=7) {} 11-21 09:27:00 [core.py:842] OddError: what nobody knows\n"

    assert explain([log(tmp_path, line.format("ERROR"))]).number == 1
    assert explain([log(tmp_path, line.format("WARNING"))]).kind == "none"


def test_a_notebooks_traceback_is_read_past_its_calls(tmp_path: Path) -> None:
    text = (
        "OddError                 Traceback (most recent call last)\n/a/lib/m.py in f(self, x)\n      1 def f():\n"
        "----> 2     g()\n\n17 frames\nOddError: what nobody knows\n"
    )

    assert explain([log(tmp_path, text)]).line == "OddError: what nobody knows"


@pytest.mark.parametrize(
    "line", ["n0:1:2 [0] NCCL INFO x.cc:1 -> 3", "(W pid=1) INFO Parent process exited, terminating"]
)
def test_an_end_is_no_life_however_many_lines_it_has(line: str, tmp_path: Path) -> None:
    path = log(tmp_path, f"{GPU}\n" + f"{line}\n" * 20)

    assert explain([path]).kind == "memory"


def test_rays_wrapper_gives_way_to_what_it_carries(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        'Traceback (most recent call last):\n  File "m.py", line 1, in run\n'
        "ray.exceptions.RayTaskError(KeyError): ray::f()\n"
        "  File \"n.py\", line 2, in f\nKeyError: 'reward'\n",
    )

    assert explain([path]).line == "KeyError: 'reward'"
    assert explain([path]).kind == "unknown"


def test_what_training_survived_is_none_and_what_it_did_not_is(tmp_path: Path) -> None:
    survived = log(tmp_path, f"{GPU}\n{STEP.format(1)}{STEP.format(2)}")
    again = log(tmp_path, f"{GPU}\n{STEP.format(1)}{GPU.replace('2.00', '3.00')}\n", "again.out")

    assert explain([survived]).kind == "none"
    assert "3.00 GiB" in explain([again]).line


LOADS = "loading\nno such widget, using another\nloading\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (LOADS + "widget: could not open /x\nwidget: failed to begin\ngood bye\n", "widget: could not open /x"),
        (LOADS + "good bye\n", "no such widget, using another"),
        ("loading\nloaded\n\n", "loaded"),
    ],
)
def test_a_job_that_is_known_to_have_failed_is_told_by_its_last_complaint_or_its_end(
    tmp_path: Path, text: str, line: str
) -> None:
    quiet = log(tmp_path, text)

    assert explain([quiet]).kind == "none"
    told = explain([quiet], failed=True)
    assert (told.kind, told.line) == ("unknown", line)


def test_what_training_survived_is_no_complaint_of_a_job_that_failed_later(tmp_path: Path) -> None:
    told = explain([log(tmp_path, "could not open /x\n" + STEP.format(1) + "then it stood\n")], failed=True)

    assert told.line == "then it stood"


def test_the_word_of_a_job_that_went_well_goes_before_that_of_who_asks(tmp_path: Path) -> None:
    well = log(tmp_path, "could not open /x\nverdict: 0 (train on n1): training ended\n")

    assert explain([well], failed=True).kind == "none"


def test_the_first_of_two_nodes_is_the_one_that_failed_first(tmp_path: Path) -> None:
    log(tmp_path, f"2026-01-01 10:00:09,1 INFO x\n{GPU}\n", "nodes/0-n1/node.log")
    log(tmp_path, "2026-01-01 10:00:02,1 INFO x\nOSError: [Errno 122] Disk quota exceeded\n", "nodes/1-n2/node.log")

    told = explain([tmp_path])

    assert (told.kind, told.host) == ("data", "n2")


def test_rays_own_logs_are_asked_where_the_story_tells_no_cause(tmp_path: Path) -> None:
    log(tmp_path, "ray.exceptions.ActorDiedError: The actor died unexpectedly\n", "nodes/0-n1/node.log")
    log(tmp_path, f"{GPU}\n", "nodes/1-n2/ray/worker-1.err")

    told = explain([tmp_path])

    assert (told.kind, told.host, told.consequences) == ("memory", "n2", ("ray-actor-died",))


def test_an_address_becomes_the_host_that_the_job_knows_it_by(tmp_path: Path) -> None:
    log(tmp_path, f"(W pid=1, ip=10.0.0.2) {GPU}\n", "nodes/0-n1/node.log")
    log(tmp_path, json.dumps({"nodes": [{"host": "n2", "address": "10.0.0.2"}]}), "config.json")

    assert explain([tmp_path]).host == "n2"


def result(folder: Path, code: int, stage: str, cause: str) -> None:
    told = {"code": code, "stage": stage, "host": "n1", "cause": cause, "fix": "Do this."}
    log(folder, json.dumps(told), "result.json")


def test_what_the_job_checked_itself_goes_before_its_logs(tmp_path: Path) -> None:
    log(tmp_path, f"{GPU}\n", "nodes/0-n1/node.log")
    result(tmp_path, 65, "checks", "The recipe is wrong.")

    told = explain([tmp_path])

    assert (told.kind, told.cause, told.fix) == ("config", "The recipe is wrong.", "Do this.")


def test_a_lost_node_is_the_jobs_own_word_unless_a_log_has_a_cause(tmp_path: Path) -> None:
    log(tmp_path, 'Traceback (most recent call last):\n  File "a"\nEOFError: x\n', "nodes/0-n1/node.log")
    result(tmp_path, 76, "cluster", "The raylet on n1 was killed.")
    assert explain([tmp_path]).cause == "The raylet on n1 was killed."

    log(tmp_path, f"{GPU}\n", "nodes/0-n1/node.log")
    assert explain([tmp_path]).kind == "memory"


def test_a_job_that_went_well_failed_nowhere(tmp_path: Path) -> None:
    log(tmp_path, f"{GPU}\n", "nodes/0-n1/node.log")
    result(tmp_path, 0, "train", "Training ended with code 0.")

    assert explain([tmp_path]).kind == "none"


def test_the_output_of_a_job_has_its_verdict_in_the_last_line(tmp_path: Path) -> None:
    path = log(tmp_path, "verdict: 77 (image on n2): the account may not use docker — add it to the group\n")

    told = explain([path])

    assert (told.kind, told.host, told.fix) == ("slurm-container", "n2", "add it to the group")


def test_the_newest_attempt_of_a_jobs_folder_is_read(tmp_path: Path) -> None:
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
def test_what_the_job_says_of_its_end_has_its_class(tmp_path: Path, verdict: str, kind: str) -> None:
    assert explain([log(tmp_path, f"verdict: {verdict}\n")]).kind == kind


def test_the_class_that_the_output_has_of_its_own_verdict_is_taken(tmp_path: Path) -> None:
    first = "first failure image: n2 runs image sha256:1.\nwhere         n2\n"
    last = "verdict: 69 (join on n2): n2 runs image sha256:1. — Bring the same image.\n"

    assert explain([log(tmp_path, first + last)]).kind == "image"
    assert explain([log(tmp_path, f"first failure memory: another\n{last}")]).kind == "ray-gcs"


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(NothingToRead, match="expected a log"):
        explain([tmp_path / "nowhere"])


def test_secrets_are_masked(tmp_path: Path) -> None:
    secret = "hf_" + "Ab1" * 11
    told = explain([log(tmp_path, f"{GPU} HF_TOKEN={secret}\n")])

    assert secret not in told.json() + told.text()
    assert "***" in told.line


def test_the_object_has_the_keys_that_machines_rely_on(tmp_path: Path) -> None:
    told = json.loads(explain([log(tmp_path, f"{GPU}\n")]).json())

    assert list(told) == ["class", "cause", "host", "file", "line", "fix", "references", "seen_not_fatal"]
    assert told["line"] == GPU
    assert told["references"][0] == "docs/troubleshooting.md#memory-gpu"


def test_a_large_log_is_read_in_parts_and_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from verl_node.explain.logs import scan

    monkeypatch.setattr(scan, "PART_BYTES", 1 << 20)
    noise = "(W pid=1) INFO generated 17 tokens, 3 errors so far\n" * 60_000
    path = log(tmp_path, f"{noise}{GPU}\n")

    assert explain([path], processes=2).line == GPU
    assert explain([path], processes=1).number == 60_001


def test_at_its_time_limit_it_says_what_it_did_not_read(tmp_path: Path) -> None:
    told = explain([log(tmp_path, f"{GPU}\n")], limit_s=0.0)

    assert told.unread_bytes == len(GPU) + 1
    assert "not read" in told.text()


CODES = (0, 64, 65, 66, 69, 70, 71, 75, 76, 77, 93, 143, 137, 1)
STAGES = ("launch", "image", "container", "checks", "head", "join", "cluster", "data", "model", "train", "hang", "lead")


def test_shell_and_verl_node_give_a_verdict_the_same_class() -> None:
    library = CHECKOUT / "slurm" / "lib" / "common" / "verdict.sh"
    each = 'VERDICT=([code]=$code [stage]=$stage); verdict::classify; echo "${VERDICT[class]}"'
    script = f"source {library}; while read -r code stage; do {each}; done"
    cases = [(code, stage) for code in CODES for stage in STAGES]
    asked = "".join(f"{code} {stage}\n" for code, stage in cases)
    done = subprocess.run(["bash", "-euc", script], input=asked, capture_output=True, text=True, check=True)

    assert done.stdout.split() == [default_class(code, stage) for code, stage in cases]


@pytest.mark.parametrize(("given", "wanted"), [({"class": "memory"}, "memory"), ({}, "ray-gcs")])
def test_the_class_of_a_verdict_is_a_field_and_that_of_an_older_one_follows_from_code_and_stage(
    given: dict[str, str], wanted: str, tmp_path: Path
) -> None:
    told = {"code": 75, "stage": "join", "host": "n1", "cause": "It is late.", "fix": "", **given}
    (tmp_path / "result.json").write_text(json.dumps(told))

    found = outcome.find_verdict([tmp_path], [])

    assert found
    assert found.kind == wanted


def test_the_last_line_is_the_one_that_launch_sh_prints() -> None:
    library = (CHECKOUT / "slurm" / "lib" / "common" / "verdict.sh").read_text()

    assert (
        'local text="verdict: ${VERDICT[code]} (${VERDICT[stage]} on ${VERDICT[host]}): ${VERDICT[cause]}"' in library
    )
    assert outcome._LAST_LINE.search("verdict: 76 (cluster on n2): it was lost — see there".encode())


def test_the_page_is_what_the_rules_make_of_it() -> None:
    from verl_node.explain import page

    text = (CHECKOUT / "docs" / "troubleshooting.md").read_text()
    found = re.search(r"<!-- rules: begin -->\n(.*)\n<!-- rules: end -->", text, re.DOTALL)

    assert found
    assert found[1] == page.page()  # else: ./run dev.troubleshooting
