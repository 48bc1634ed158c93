"""Failures without a rule: the part of the stack, by the exception, its frames and its process."""

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


def match_frames(*calls: str, **more: str) -> str:
    """Return the entry that matches an exception by its frames."""
    *before, exception = traceback(*calls, **more)
    match = stack_parts.match_exception(exception.encode(), before)
    return match.part.id if match else ""


def match_code(call: str, code: str, exception: str) -> str:
    """Return the entry that matches an exception by its innermost frame and that frame's code."""
    frames = traceback("train.py in main", call)[:-1]
    match = stack_parts.match_exception(exception.encode(), [*frames, f"    {code}"])
    return match.part.id if match else ""


def match_example(part: StackPart) -> str:
    """Return the entry that matches a part's example."""
    if part.by in ("exception", "otherwise"):
        return match_frames("train.py in main", exception=part.example)
    if part.by in ("frame", "raised"):
        return match_frames("train.py in main", part.example)
    if part.by == "importing":
        return match_frames("train.py in main", f"{part.example} in <module>")
    if part.by == "writer":
        ray = part.example.startswith("ray::")
        begin = f"ray.exceptions.RayTaskError(OddError): {part.example}()" if ray else ""
        exception = ODD if ray else f"{part.example} {ODD}"
        match = stack_parts.match_exception(exception.encode(), [begin, '  File "x.py", line 1, in f'])
        return match.part.id if match else ""
    if part.by in ("together", "code"):
        example = part.example if part.by == "together" else f"train.py in main -- {part.example} -- {ODD}"
        return match_code(*example.split(" -- "))
    return next(
        match.part.id for _, match in stack_parts.match_tail(part.example.encode(), ended_badly=part.by == "line")
    )


@pytest.mark.parametrize("part", TABLE, ids=lambda part: part.id)
def test_stack_part_matches_its_example(part: StackPart) -> None:
    assert match_example(part) == part.id


@pytest.mark.parametrize("part", TABLE, ids=lambda part: part.id)
def test_stack_part_has_valid_fields(part: StackPart) -> None:
    assert part.kind in CLASSES
    assert part.by in stack_parts.WAYS
    assert part.what
    assert part.fix.endswith(".")
    assert re.match(
        r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+$|own run, |a public |job \d+ of a ", part.source
    )
    for page in part.references:
        assert (CHECKOUT / page).is_file()


def test_stack_part_ids_are_unique_and_every_way_is_used() -> None:
    assert len({part.id for part in TABLE}) == len(TABLE)
    assert {part.by for part in TABLE} == set(stack_parts.WAYS)


def test_innermost_matching_call_decides() -> None:
    calls = ["/verl/verl/workers/fsdp_workers.py in generate", "/x/site-packages/vllm/v1/engine/core.py in step"]

    assert match_frames(*calls) == "at-rollout"
    assert match_frames(*reversed(calls)) == "at-fsdp"
    assert match_frames(*calls, "/usr/lib/python3.12/json/decoder.py in decode") == "at-rollout"


@pytest.mark.parametrize(
    "call",
    [
        "/x/site-packages/hydra/_internal/utils.py in run_and_report",
        "/x/site-packages/hydra/core/utils.py in run_job",
        "/x/site-packages/ray/_private/worker.py in get_objects",
        "/x/site-packages/torch/distributed/run.py in main",
        "/x/site-packages/torch/nn/modules/module.py in _call_impl",
        "/x/site-packages/transformers/models/qwen2/modeling_qwen2.py in forward",
        "/x/site-packages/ray/_private/services.py in start_monitor",  # matches only as the innermost frame
    ],
)
def test_frames_that_only_run_other_code_do_not_decide(call: str) -> None:
    assert match_frames(call, "train.py in reward") == ""


def test_users_code_wins_over_the_library_that_called_it() -> None:
    trainer = "/v/lib/python3.12/site-packages/megatron/core/transformer/moe_layer.py in combine"
    assert match_frames(trainer) == "at-fsdp"
    assert not match_frames(trainer, "/w/tests/utils.py in combine")
    assert match_frames(trainer, "/usr/lib/python3.12/contextlib.py in __enter__") == "at-fsdp"


def test_raised_and_accidental_exceptions_of_a_library_differ() -> None:
    trainer = "/v/lib/python3.12/site-packages/trl/trainer/odd_trainer.py in __init__"

    assert match_code(trainer, "raise ValueError(", "ValueError: odd") == "raised-of-settings"
    assert match_code(trainer, "x = args.odd", "AttributeError: 'OddThing' object has no attribute 'odd'") == (
        "met-in-a-library"
    )
    assert match_code(trainer, "x = args.odd", "AttributeError: 'NoneType' object has no attribute 'odd'") == ""
    assert match_code("/w/train.py in main", "x = y.odd", "AttributeError: 'Odd' object has no attribute 'odd'") == ""


def test_missing_files_are_no_setting() -> None:
    loader = "/w/tasks.py in __init__"

    assert match_code(loader, "assert len(self.files) > 0", "AssertionError") == "asserted-of-files"
    assert match_code(loader, "assert self.size > 0", "AssertionError") == "raised-of-settings"


def test_only_keys_of_rows_are_data() -> None:
    assert match_code("/w/train.py in add", "x = example[key]", "KeyError: 'odd'") == "met-in-a-row"
    assert match_code("/w/train.py in add", "x = obs['odd']", "KeyError: 'odd'") == ""


def test_indented_lines_below_an_exception_are_part_of_it(tmp_path: Path) -> None:
    frames = 'Traceback (most recent call last):\n  File "/w/a.py", line 1, in f\n'
    words = "OddError: 1 odd thing\n  Value error, Transformers does not recognize this architecture\n"

    assert explain([log(tmp_path, frames + words)]).kind == "image"
    assert explain([log(tmp_path, frames + words.replace("  Value", "Value"))]).kind == "unknown"


def test_library_in_a_checkout_is_recognised() -> None:
    assert match_frames("/w/src/transformers/configuration_utils.py in from_dict") == "at-hub"
    assert match_frames("/w/DeepSpeed-0.16/deepspeed/runtime/engine.py in step") == "at-fsdp"
    assert not match_frames("/w/src/transformed/configuration_utils.py in from_dict")


def test_users_folder_is_not_the_library_of_its_name() -> None:
    assert match_frames("/home/u/vllm/train.py in main") == ""
    assert match_frames("/home/u/vllm/vllm/v1/engine/core.py in step") == "at-rollout"


def test_only_imported_modules_count_as_importing() -> None:
    begin = ["<frozen runpy> in _run_code", "/home/u/main_ppo.py in <module>"]

    assert match_frames(*begin) == ""
    assert match_frames(*begin, "/home/u/main_ppo.py in <module>") == ""  # it catches and re-raises
    assert match_frames(*begin, "/home/u/plugin.py in <module>") == "while-importing"


def test_guess_is_reported_with_evidence_and_traceback(tmp_path: Path) -> None:
    path = log(tmp_path, "\n".join(traceback("/w/a.py in main", "/x/site-packages/vllm/engine/x.py in step")) + "\n")

    explanation = explain([path])

    assert (explanation.kind, explanation.rule, explanation.line, explanation.number) == ("vllm", "", ODD, 4)
    assert explanation.cause.startswith("No rule matches this failure; its class, vllm, is a guess from ")
    assert "vllm/engine/x.py, line 1, in step" in explanation.cause
    assert 'File "/w/a.py", line 1, in main' in explanation.text()
    assert "may become a rule" in explanation.fix


def test_rays_method_identifies_a_process(tmp_path: Path) -> None:
    head = "ray.exceptions.RayTaskError(OddError): ray::AsyncvLLMServer.init_engine() (pid=1, ip=10.0.0.1)"

    assert explain([log(tmp_path, f'{head}\n  File "a.py", line 1, in f\n{ODD}\n')]).kind == "vllm"


def test_exception_in_an_actors_creation_wins_over_actor_died(tmp_path: Path) -> None:
    died = "The actor died because of an error raised in its creation task, ray::W.__init__() (pid=1)"
    path = log(
        tmp_path, f'ray.exceptions.ActorDiedError: {died}\n  File "/x/megatron/core/a.py", line 1, in f\n{ODD}\n'
    )
    alone = log(
        tmp_path, f'(W pid=1) Exception raised in creation task: {died}\n(W pid=1)   File "a"\n(W pid=1) {ODD}\n'
    )

    assert explain([path]).line in (ODD, f"(W pid=1) {ODD}")
    assert explain([alone]).line == f"(W pid=1) {ODD}"


def test_reaction_leads_to_the_chained_exception(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        'ray.exceptions.RayTaskError(OddError): ray::W.f() (pid=1)\n  File "a.py", line 1, in f\n'
        "subprocess.CalledProcessError: Command 'x' returned non-zero exit status 215.\n\n"
        "The above exception was the direct cause of the following exception:\n\nray::W.f() (pid=1)\n"
        f'  File "b.py", line 1, in g\n{ODD}\n',
    )

    assert explain([path]).line == ODD


def test_exception_of_a_data_loaders_worker_wins_over_its_wrapper(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n'
        "ValueError: Caught ValueError in DataLoader worker process 0.\n"
        f'Original Traceback (most recent call last):\n  File "b.py", line 1, in g\n{ODD}\n',
    )

    assert explain([path]).line == ODD


def test_native_crash_is_matched_by_the_calls_after_it() -> None:
    frames = b'  File "/x/vllm/v1/a.py", line 3 in f\n  File "m.py", line 1 in g\n'
    text = b"\nCurrent thread 0x1 (most recent call first):\n" + frames

    assert [call.path for call in tracebacks.frames(tracebacks.calls_after(text))] == ["m.py", "/x/vllm/v1/a.py"]


def test_common_messages_of_ray_count_after_a_bad_end(tmp_path: Path) -> None:
    warned = "[2026-01-02 03:04:05,678 E 7 7] (raylet) odd.cc:1: what nobody knows\n"

    assert explain([log(tmp_path, warned)]).kind == "none"
    assert explain([log(tmp_path, warned + ENDED)]).kind == "ray-gcs"
    assert explain([log(tmp_path, ENDED)]).kind == "unknown"


@pytest.mark.parametrize(
    "after", ["", "(TaskRunner pid=7) step:9 - actor/pg_loss:0.1\n(raylet) A worker died or was killed\n"]
)
def test_workers_stopped_after_verls_last_line_are_no_failure(after: str, tmp_path: Path) -> None:
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
def test_common_messages_of_slurm_and_ray_are_no_failure(line: str, tmp_path: Path) -> None:
    assert explain([log(tmp_path, f"{line}\nall done\n")]).kind == "none"
