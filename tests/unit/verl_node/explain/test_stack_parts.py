"""What is told of a failure that no rule knows: where it happened, by its words, its frames and who said it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from verl_node.explain import explain, rules, stack_parts
from verl_node.explain.logs import tracebacks
from verl_node.explain.stack_parts import StackPart

from tests.support.paths import CHECKOUT

CLASSES = {each.name for each in rules.load_classes()} - set(rules.OTHER_CLASSES)
TABLE = stack_parts.load()
ENDED = "srun: error: n1: task 0: Exited with exit code 1\n"
ODD = "OddError: what nobody knows"


def log(folder: Path, text: str) -> Path:
    path = folder / "job.out"
    path.write_text(text)
    return path


def traceback(*calls: str, exception: str = ODD, begin: str = tracebacks.HEADS[0].decode() + ":") -> list[str]:
    frames = [
        f'  File "{path}", line 1, in {function}' for path, _, function in (call.partition(" in ") for call in calls)
    ]
    return [begin, *frames, exception]


def of_frames(*calls: str, **more: str) -> str:
    """Return the entry that places an exception which nothing but its frames tells."""
    *before, exception = traceback(*calls, **more)
    match = stack_parts.match_exception(exception.encode(), before)
    return match.part.id if match else ""


def of_code(call: str, code: str, exception: str) -> str:
    """Return the entry that places an exception by its innermost frame and that frame's code."""
    frames = traceback("train.py in main", call)[:-1]
    match = stack_parts.match_exception(exception.encode(), [*frames, f"    {code}"])
    return match.part.id if match else ""


def of_example(part: StackPart) -> str:
    """Return the entry that its own example leads to."""
    if part.by in ("exception", "otherwise"):
        return of_frames("train.py in main", exception=part.example)
    if part.by in ("frame", "raised"):
        return of_frames("train.py in main", part.example)
    if part.by == "importing":
        return of_frames("train.py in main", f"{part.example} in <module>")
    if part.by == "writer":
        ray = part.example.startswith("ray::")
        begin = f"ray.exceptions.RayTaskError(OddError): {part.example}()" if ray else ""
        exception = ODD if ray else f"{part.example} {ODD}"
        match = stack_parts.match_exception(exception.encode(), [begin, '  File "x.py", line 1, in f'])
        return match.part.id if match else ""
    if part.by in ("together", "code"):
        example = part.example if part.by == "together" else f"train.py in main -- {part.example} -- {ODD}"
        return of_code(*example.split(" -- "))
    return next(
        match.part.id for _, match in stack_parts.match_tail(part.example.encode(), ended_badly=part.by == "line")
    )


@pytest.mark.parametrize("part", TABLE, ids=lambda part: part.id)
def test_a_place_is_found_by_what_a_log_once_had(part: StackPart) -> None:
    assert of_example(part) == part.id


@pytest.mark.parametrize("part", TABLE, ids=lambda part: part.id)
def test_a_place_has_what_its_reader_needs(part: StackPart) -> None:
    assert part.kind in CLASSES
    assert part.by in stack_parts.WAYS
    assert part.what
    assert part.fix.endswith(".")
    assert re.match(
        r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+$|own run, |a public |job \d+ of a ", part.source
    )
    for page in part.references:
        assert (CHECKOUT / page).is_file()


def test_no_two_places_share_a_name_and_every_way_is_used() -> None:
    assert len({part.id for part in TABLE}) == len(TABLE)
    assert {part.by for part in TABLE} == set(stack_parts.WAYS)


def test_the_innermost_call_decides_that_an_entry_has() -> None:
    calls = ["/verl/verl/workers/fsdp_workers.py in generate", "/x/site-packages/vllm/v1/engine/core.py in step"]

    assert of_frames(*calls) == "at-rollout"
    assert of_frames(*reversed(calls)) == "at-fsdp"
    assert of_frames(*calls, "/usr/lib/python3.12/json/decoder.py in decode") == "at-rollout"


@pytest.mark.parametrize(
    "call",
    [
        "/x/site-packages/hydra/_internal/utils.py in run_and_report",
        "/x/site-packages/hydra/core/utils.py in run_job",
        "/x/site-packages/ray/_private/worker.py in get_objects",
        "/x/site-packages/torch/distributed/run.py in main",
        "/x/site-packages/torch/nn/modules/module.py in _call_impl",
        "/x/site-packages/transformers/models/qwen2/modeling_qwen2.py in forward",
        "/x/site-packages/ray/_private/services.py in start_monitor",  # an entry has it, but only where it raises
    ],
)
def test_what_only_runs_others_code_does_not_decide(call: str) -> None:
    assert of_frames(call, "train.py in reward") == ""


def test_what_somebodys_own_code_raises_is_not_the_librarys_that_called_it() -> None:
    trainer = "/v/lib/python3.12/site-packages/megatron/core/transformer/moe_layer.py in combine"
    assert of_frames(trainer) == "at-fsdp"
    assert not of_frames(trainer, "/w/tests/utils.py in combine")
    assert of_frames(trainer, "/usr/lib/python3.12/contextlib.py in __enter__") == "at-fsdp"


def test_what_a_library_raises_of_settings_is_not_what_it_stumbles_over() -> None:
    trainer = "/v/lib/python3.12/site-packages/trl/trainer/odd_trainer.py in __init__"

    assert of_code(trainer, "raise ValueError(", "ValueError: odd") == "raised-of-settings"
    assert of_code(trainer, "x = args.odd", "AttributeError: 'OddThing' object has no attribute 'odd'") == (
        "met-in-a-library"
    )
    assert of_code(trainer, "x = args.odd", "AttributeError: 'NoneType' object has no attribute 'odd'") == ""
    assert of_code("/w/train.py in main", "x = y.odd", "AttributeError: 'Odd' object has no attribute 'odd'") == ""


def test_files_that_are_not_there_are_no_setting() -> None:
    loader = "/w/tasks.py in __init__"

    assert of_code(loader, "assert len(self.files) > 0", "AssertionError") == "asserted-of-files"
    assert of_code(loader, "assert self.size > 0", "AssertionError") == "raised-of-settings"


def test_a_key_that_a_row_lacks_is_not_a_key_that_anything_lacks() -> None:
    assert of_code("/w/train.py in add", "x = example[key]", "KeyError: 'odd'") == "met-in-a-row"
    assert of_code("/w/train.py in add", "x = obs['odd']", "KeyError: 'odd'") == ""


def test_what_the_lines_below_an_exception_say_counts_as_its_words(tmp_path: Path) -> None:
    frames = 'Traceback (most recent call last):\n  File "/w/a.py", line 1, in f\n'
    words = "OddError: 1 odd thing\n  Value error, Transformers does not recognize this architecture\n"

    assert explain([log(tmp_path, frames + words)]).kind == "image"
    assert explain([log(tmp_path, frames + words.replace("  Value", "Value"))]).kind == "unknown"


def test_a_library_that_runs_from_its_checkout_is_that_library() -> None:
    assert of_frames("/w/src/transformers/configuration_utils.py in from_dict") == "at-hub"
    assert of_frames("/w/DeepSpeed-0.16/deepspeed/runtime/engine.py in step") == "at-fsdp"
    assert not of_frames("/w/src/transformed/configuration_utils.py in from_dict")


def test_a_folder_of_the_users_is_not_the_library_of_that_name() -> None:
    assert of_frames("/home/u/vllm/train.py in main") == ""
    assert of_frames("/home/u/vllm/vllm/v1/engine/core.py in step") == "at-rollout"


def test_a_program_of_ones_own_is_not_being_imported_and_what_it_imports_is() -> None:
    begin = ["<frozen runpy> in _run_code", "/home/u/main_ppo.py in <module>"]

    assert of_frames(*begin) == ""
    assert of_frames(*begin, "/home/u/main_ppo.py in <module>") == ""  # it catches and raises again
    assert of_frames(*begin, "/home/u/plugin.py in <module>") == "while-importing"


def test_the_report_says_that_no_rule_knows_it_why_it_is_there_and_shows_the_traceback(tmp_path: Path) -> None:
    path = log(tmp_path, "\n".join(traceback("/w/a.py in main", "/x/site-packages/vllm/engine/x.py in step")) + "\n")

    told = explain([path])

    assert (told.kind, told.rule, told.line, told.number) == ("vllm", "", ODD, 4)
    assert told.cause.startswith("No rule matches this failure; its class, vllm, is a guess from ")
    assert "vllm/engine/x.py, line 1, in step" in told.cause
    assert 'File "/w/a.py", line 1, in main' in told.text()
    assert "may become a rule" in told.fix


def test_rays_method_tells_a_process_where_the_frames_are_elsewhere(tmp_path: Path) -> None:
    head = "ray.exceptions.RayTaskError(OddError): ray::AsyncvLLMServer.init_engine() (pid=1, ip=10.0.0.1)"

    assert explain([log(tmp_path, f'{head}\n  File "a.py", line 1, in f\n{ODD}\n')]).kind == "vllm"


def test_an_exception_in_an_actors_making_is_its_own_and_not_that_the_actor_died(tmp_path: Path) -> None:
    died = "The actor died because of an error raised in its creation task, ray::W.__init__() (pid=1)"
    path = log(
        tmp_path, f'ray.exceptions.ActorDiedError: {died}\n  File "/x/megatron/core/a.py", line 1, in f\n{ODD}\n'
    )
    alone = log(
        tmp_path, f'(W pid=1) Exception raised in creation task: {died}\n(W pid=1)   File "a"\n(W pid=1) {ODD}\n'
    )

    assert explain([path]).line in (ODD, f"(W pid=1) {ODD}")
    assert explain([alone]).line == f"(W pid=1) {ODD}"


def test_the_answer_to_anothers_end_leads_to_the_exception_that_it_caused(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        'ray.exceptions.RayTaskError(OddError): ray::W.f() (pid=1)\n  File "a.py", line 1, in f\n'
        "subprocess.CalledProcessError: Command 'x' returned non-zero exit status 215.\n\n"
        "The above exception was the direct cause of the following exception:\n\nray::W.f() (pid=1)\n"
        f'  File "b.py", line 1, in g\n{ODD}\n',
    )

    assert explain([path]).line == ODD


def test_a_data_loaders_wrapper_gives_way_to_what_its_worker_met(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n'
        "ValueError: Caught ValueError in DataLoader worker process 0.\n"
        f'Original Traceback (most recent call last):\n  File "b.py", line 1, in g\n{ODD}\n',
    )

    assert explain([path]).line == ODD


def test_a_crash_of_native_code_is_placed_by_the_calls_after_it() -> None:
    frames = b'  File "/x/vllm/v1/a.py", line 3 in f\n  File "m.py", line 1 in g\n'
    text = b"\nCurrent thread 0x1 (most recent call first):\n" + frames

    assert [call.path for call in tracebacks.frames(tracebacks.calls_after(text))] == ["m.py", "/x/vllm/v1/a.py"]


def test_what_ray_also_says_in_jobs_that_go_on_counts_in_one_that_ended_badly(tmp_path: Path) -> None:
    warned = "[2026-01-02 03:04:05,678 E 7 7] (raylet) odd.cc:1: what nobody knows\n"

    assert explain([log(tmp_path, warned)]).kind == "none"
    assert explain([log(tmp_path, warned + ENDED)]).kind == "ray-gcs"
    assert explain([log(tmp_path, ENDED)]).kind == "unknown"


@pytest.mark.parametrize(
    "after", ["", "(TaskRunner pid=7) step:9 - actor/pg_loss:0.1\n(raylet) A worker died or was killed\n"]
)
def test_workers_that_are_taken_down_after_verls_last_word_are_no_failure(after: str, tmp_path: Path) -> None:
    ended = (
        "(TaskRunner pid=7) step:8 - actor/pg_loss:0.1\n(TaskRunner pid=7) (\"Final validation metrics: {'a': 1}\")\n"
    )
    path = log(tmp_path, f"{ended}(raylet) A worker died or was killed while executing a task\n{after}")

    assert explain([path]).kind == ("ray-gcs" if after else "none")


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: task/cgroup: unable to add task[pid=7] to memory cg '(null)'",
        "srun: error: ioctl(TIOCGWINSZ): Inappropriate ioctl for device",
        "[2026-01-02 03:04:05,678 E 7 7] (raylet) file_system_monitor.cc:116: /tmp/ray is over 95% full",
    ],
)
def test_what_slurm_and_ray_say_in_jobs_that_go_well_is_no_failure(line: str, tmp_path: Path) -> None:
    assert explain([log(tmp_path, f"{line}\nall done\n")]).kind == "none"
