"""bench/gpu/training.py: inputs, settings and tables, without a GPU."""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from bench.gpu import gpu_job, training, training_inputs, training_job, training_result, training_table, update
from bench.gpu.reward import compute_score
from bench.gpu.rollout import SHORTEST_PROMPT
from bench.gpu.wheels import pack
from tests.support.paths import CHECKOUT, DATA

LOCK = CHECKOUT / "images" / "pins" / "locks" / "verl0.9.1-py3.12-torch2.11.0-x86_64-4ea378.txt"
RECIPES = CHECKOUT / "slurm" / "recipes"


def a_row(step: int, time: float, **metrics: float) -> dict[str, Any]:
    """Return a row of metrics.jsonl: 320 answers of 1024 tokens to prompts of 101, in 20 s."""
    return {
        "time": time,
        "step": step,
        "phases": {"gen": 10.0, "old_log_prob": 2.0, "update_actor": 5.0, "update_weights": 1.0, "step": 20.0},
        "metrics": {
            "perf/total_num_tokens": 360000,
            "prompt_length/mean": 101.0,
            "response_length/mean": 1024.0,
            "actor/grad_norm": 0.5,
            "critic/score/max": 0.3,
            "critic/score/min": 0.1,
            "val-core/x": 0.2,
            **metrics,
        },
        "gpus": [{"utilisation_percent": 80.0, "memory_used_bytes": 40 << 30}],
    }


@pytest.fixture
def a_run(tmp_path: Path) -> Path:
    """Return the folder of a job with three steps, which began at 1000."""
    folder = tmp_path / "grpo-0.5b-1gpu-1"
    folder.mkdir()
    launch = {
        "kind": "grpo",
        "model": "/inputs/models/0.5b",
        "random_weights": True,
        "configuration": training_inputs.SHAPES["0.5b"],
        "gpus": 1,
        "card": "NVIDIA H100",
        "overrides": {"data.train_batch_size": 64, "actor_rollout_ref.actor.ppo_mini_batch_size": 16},
        "began": 1000.0,
        "ended": 1200.0,
        "code": 0,
        "problems": [],
    }
    (folder / "launch.json").write_text(json.dumps(launch))
    rows = [a_row(step, 1100.0 + 20 * step) for step in (1, 2, 3)]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    samples = [{"time": float(second), "gpus": [[90.0, 50000.0, 600.0]]} for second in range(1000, 1200)]
    (folder / "smi.jsonl").write_text("".join(f"{json.dumps(sample)}\n" for sample in samples))
    graphs = "1040.500 (x pid=2) Graph capturing finished in 7 secs, took 1 GiB\n"
    (folder / "output").write_text(f"1050.000 (TaskRunner pid=1) Training Progress:   0%|\n{graphs}")
    return folder


def test_the_tokenizer_has_as_many_tokens_as_qwen2() -> None:
    pairs = list(islice(training_inputs.merges(), training_inputs.TOKENS - training_inputs.BYTES))
    joined = Counter(first + second for first, second in pairs)

    assert len(pairs) == len(joined) == training_inputs.TOKENS - 256
    known = {*training_inputs.CONSONANTS, *training_inputs.VOWELS, training_inputs.BLANK}
    for first, second in pairs:  # a pair joins tokens that exist before it
        assert first in known
        assert second in known
        known.add(first + second)


@pytest.mark.parametrize(("shape", "billions"), [("0.5b", 0.49), ("1.5b", 1.54), ("7b", 7.6)])
def test_a_shape_has_the_parameters_of_its_model(shape: str, billions: float) -> None:
    shapes = training_inputs.SHAPES[shape]
    tokens = 1.0
    operations = training_result.update_flops(
        shapes, {"perf/total_num_tokens": tokens, "prompt_length/mean": 0.0, "response_length/mean": 0.0}
    )
    embedding = 0 if shapes["tie_word_embeddings"] else shapes["hidden_size"] * shapes["vocab_size"]

    assert (operations / 6 + embedding) / 1e9 == pytest.approx(billions, rel=0.01)


@pytest.mark.parametrize(("answer", "reward"), [(" bada kedu", 0.5), (" kedu", 0.0), ("", 0.0)])
def test_the_reward_is_the_share_of_favoured_words(answer: str, reward: float) -> None:
    assert compute_score("openai/gsm8k", answer, "7") == reward


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize(("kind", "of_share"), [("ppo", 1), ("grpo", 2)])
def test_the_batch_is_the_gpus_share_of_the_recipe_and_half_of_it_for_grpo(kind: str, of_share: int, gpus: int) -> None:
    changes = training.overrides(kind, "0.5b", gpus, 7, ["trainer.test_freq=3"])
    recipe = (RECIPES / f"gsm8k_{kind}.yaml").read_text()

    assert f"data.train_batch_size: {changes['data.train_batch_size'] * of_share * 16 // gpus}" in recipe
    mini_batch = changes["actor_rollout_ref.actor.ppo_mini_batch_size"]
    assert f"actor_rollout_ref.actor.ppo_mini_batch_size: {mini_batch * of_share * 16 // gpus}" in recipe
    assert changes["trainer.test_freq"] == "3"


def test_with_a_real_model_the_reward_is_verls() -> None:
    assert "reward.custom_reward_function.path" not in training.overrides("grpo", "", 1, 7, [])


def test_a_shape_and_a_real_model_exclude_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERLJOB_MODEL", "Qwen/Qwen2-7B-Instruct")

    assert training.parse(["grpo"])[1] == [("grpo", "")]
    with pytest.raises(SystemExit):
        training.parse(["grpo:0.5b"])
    monkeypatch.delenv("VERLJOB_MODEL")
    with pytest.raises(SystemExit):
        training.parse(["grpo"])


def test_nodes_of_one_gpu_need_several_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training.shutil, "which", lambda name: name)
    monkeypatch.setattr(training, "uuids", lambda: ["GPU-a", "GPU-b"])

    assert training.parse(["nodes:0.5b"])[0].gpus == ["GPU-a", "GPU-b"]
    assert training.parse(["--gpus", "1", "grpo:0.5b"])[0].gpus == ["GPU-b"]
    for refused in (["--gpus", "1", "nodes:0.5b"], ["--gpus", "2", "grpo:0.5b"]):
        with pytest.raises(SystemExit):
            training.parse(refused)
    monkeypatch.setattr(training.shutil, "which", {"nvidia-smi": "nvidia-smi"}.get)
    with pytest.raises(SystemExit):
        training.parse(["nodes:0.5b"])


def test_random_weights_are_made_on_the_gpus_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environments: list[dict[str, str]] = []
    monkeypatch.setattr("subprocess.run", lambda *_, env, **__: environments.append(env))
    monkeypatch.setattr(training, "do", lambda _: [])
    tmp_path.joinpath("out").mkdir()
    options = training.Options(
        out=tmp_path / "out",
        inputs=tmp_path / "inputs",
        steps=7,
        limit_s=60,
        end=math.inf,
        given=[],
        gpus=["GPU-b", "GPU-c"],
        alone=False,
    )

    training.run("grpo", "0.5b", options)

    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in environments] == ["GPU-b,GPU-c"]


def test_jobs_on_other_gpus_have_other_head_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ports = [gpu_job.Job([gpu], {}).environment["VERLJOB_HEAD_PORTS"].split(",") for gpu in (0, 0, 1, 7)]

    assert len({port for each in ports for port in each}) == 12


def test_the_table_of_vllm_alone_has_what_rollout_py_writes(a_run: Path) -> None:
    (a_run / "vllm.json").write_text(
        json.dumps(
            {
                "rates": [17659.3, 17245.6, 17189.2],
                "tokens_of_batches": [163840] * 4,
                "start_s": 59.2,
                "model": "0.5b",
                "tokens": 1024,
                "prompts": 32,
                "answers": 5,
                "max_num_seqs": 256,
            }
        )
    )

    assert training_table.alone("vllm", a_run)[0][3:] == ["32 x 5", "163840", "256", "17246 (17189 to 17659)", "59"]


def test_a_sound_training_has_no_problems() -> None:
    assert training_job.find_problems(0, [a_row(1, 0), a_row(2, 20)], 2) == []


@pytest.mark.parametrize(
    ("code", "rows", "problem"),
    [
        (1, [a_row(1, 0)], "exit code 1"),
        (0, [], "metrics.jsonl ends with step 0 of 1"),
        (0, [a_row(1, 0, **{"actor/grad_norm": 0.0})], "actor/grad_norm is not positive in the steps [1]"),
        (0, [a_row(1, 0, **{"actor/grad_norm": float("nan")})], "actor/grad_norm is not positive in the steps [1]"),
        (0, [a_row(2, 0)], "metrics.jsonl begins with step 2, after the checkpoint of step 0"),
        (0, [a_row(1, 0, **{"critic/score/max": 0.1})], "all answers of a step have the same reward"),
    ],
)
def test_a_problem_is_found(code: int, rows: list[dict[str, Any]], problem: str) -> None:
    assert problem in training_job.find_problems(code, rows, 1)


def test_a_resumed_training_begins_after_its_checkpoint_and_saves_nothing(tmp_path: Path) -> None:
    options, _ = training.parse(["--out", str(tmp_path), "--inputs", str(tmp_path), "ppo-resume:0.5b"])
    jobs = [training.job("ppo-resume", "0.5b", options, steps, after) for steps, after in ((4, 0), (8, 4))]

    assert training_job.find_problems(0, [a_row(5, 0)], 5, jobs[1].after) == []
    assert [job.overrides["trainer.save_freq"] for job in jobs] == [4, -1]
    assert [job.overrides["data.train_batch_size"] for job in jobs] == [training.BATCHES["ppo"][0]] * 2
    assert jobs[0].checkpoints == jobs[1].checkpoints == tmp_path / "checkpoints"


def test_a_row_has_the_gpus_of_all_nodes() -> None:
    rows = [a_row(1, 0), {"step": 1, "time": 0, "phases": {}, "metrics": {}, "gpus": ["other"]}, a_row(2, 20)]
    whole = training_result.with_all_gpus(rows)

    assert [len(row["gpus"]) for row in whole] == [2, 1]
    assert training_job.find_problems(0, whole, 2) == []


def test_the_table_has_rates_shares_and_usage(a_run: Path) -> None:
    job = training_result.read(a_run, 1)
    cells = dict(zip(training_table.THROUGHPUT, training_table.throughput(job)))

    assert cells["steps"] == "2"
    assert cells["tokens/s"] == "18000"
    assert cells["rollout, answer tokens/s"] == "32768"
    assert cells["GPU utilisation, %"] == "90"
    assert cells["highest GPU memory, GiB"] == "48.8"
    shares = {phase: share for _, phase, _, share, _ in training_table.phases(job)}
    assert shares["gen"] == "50 %"
    assert shares["rest"] == "10 %"


def test_a_phase_has_the_utilisation_of_the_samples_in_it(a_run: Path) -> None:
    samples = [{"time": float(second), "gpus": [[second % 20, 0.0, 0.0]]} for second in range(1000, 1200)]
    (a_run / "smi.jsonl").write_text("".join(f"{json.dumps(sample)}\n" for sample in samples))
    job = training_result.read(a_run, 1)

    assert next(iter(job.rows[0]["phases"].items())) == ("gen", 10.0)
    assert job.utilisation("gen") == 6.0  # of the seconds 2 to 10 of each step
    assert job.utilisation("update_weights") is None


def test_mfu_is_the_models_operations_over_the_peak(a_run: Path) -> None:
    (mfu, _) = training_result.read(a_run, 1).update_mfu()
    by_weights = 6 * 0.494e9 * 360000 / (5 * 989e12)
    by_attention = 6 * 360000 * 1125 * 896 * 24 / (5 * 989e12)

    assert mfu == pytest.approx(by_weights + by_attention, rel=0.01)


def test_the_start_is_taken_apart_by_log_lines(a_run: Path) -> None:
    rows = training_table.start(training_result.read(a_run, 1), [])

    assert [row[1:] for row in rows] == [
        ["log: CUDA graphs are captured", "40.5", ""],
        ["log: the trainer has imported", "50.0", ""],
        ["log: first step begins", "50.0", ""],
        ["first step is logged", "120.0", ""],
        ["engine: CUDA graphs", "", "7.0"],
    ]


def test_the_table_of_updates_alone_has_what_update_py_writes(a_run: Path) -> None:
    result = {"rows": 8, "tokens_of_batch": 9037, "seconds": [0.25, 0.24, 0.26], "tokens_per_s": 36148.0, "mfu": 0.112}
    (a_run / "update.json").write_text(json.dumps(result))

    assert training_table.alone("update", a_run)[0][3:] == ["8", "9037", "250 (240 to 260)", "36148", "0.112"]
    assert training_table.alone("update", a_run)[0] in [
        line.strip("| ").split(" | ") for line in training_table.report([a_run]).splitlines()
    ]


def test_parts_alone_have_the_recipes_settings(tmp_path: Path) -> None:
    changes = training.overrides("update", "0.5b", 1, 7, ["actor_rollout_ref.rollout.n=4"])
    launch = training_job.Launch(tmp_path, "update", "m", True, ["GPU-a"], tmp_path, changes, 10)

    assert training_job.update_part(launch)[-2:] == ["--rows", "8"]
    assert (
        f"{training_job.MICRO_BATCH}: {training_job.RECIPES_MICRO_BATCH}\n" in training_job.RECIPES["grpo"].read_text()
    )
    assert training_job.rollout_part(launch)[1:5] == ["--prompts", "32", "--answers", "4"]


def test_rows_of_the_update_have_gsm8ks_lengths() -> None:
    rows = update.make_rows(8, 1024)

    assert len(rows) == 8
    assert all(1024 + SHORTEST_PROMPT <= len(row) <= 1024 + training_inputs.MAX_PROMPT for row in rows)
    assert rows == update.make_rows(8, 1024) != update.make_rows(8, 1024, seed=1)


def test_a_failed_run_is_reported(a_run: Path) -> None:
    launch = json.loads((a_run / "launch.json").read_text())
    (a_run / "launch.json").write_text(json.dumps({**launch, "problems": ["exit code 1"]}))
    (a_run / "metrics.jsonl").unlink()

    assert f"{a_run.name}: no step after the warm-up (exit code 1)" in training_table.report([a_run])


def test_a_failed_job_is_explained_by_its_output_without_times(tmp_path: Path) -> None:
    log = (DATA / "logs" / "taught" / "gpu-engine-killed.log").read_text().splitlines()
    (tmp_path / "output").write_text("".join(f"1795641168.557 {line}\n" for line in log))

    explained = training_job.explain(tmp_path).splitlines()

    assert explained[0].startswith("first failure vllm: vLLM's engine ended in another process")
    assert str(tmp_path / "output") in explained[1]


def test_pieces_have_the_engine_and_no_package_of_the_machine() -> None:
    names = {line.partition("==")[0] for line in pack.carried(LOCK.read_text())}

    assert {"verl", "vllm", "ray", "transformers", "nvidia-ml-py"} <= names
    assert not names & {"torch", "numpy", "nvidia-cublas", "triton", "flashinfer-cubin"}


@pytest.mark.parametrize(
    "name",
    [
        *("grpo-0.5b-1gpu", "grpo-0.5b-1gpu-poll", "grpo-0.5b-1gpu-rows20", "grpo-0.5b-2gpu", "grpo-7b-2gpu"),
        *("ppo-0.5b-1gpu", "ppo-0.5b-2gpu", "ppo-resume-1.5b-1gpu-1", "ppo-resume-1.5b-1gpu-2"),
    ],
)
def test_the_figures_in_the_docs_are_those_of_the_recorded_run(name: str) -> None:
    job = training_result.read(DATA / "trainings" / name, 1)
    rows = [throughput_in_the_docs(job)]
    rows += [row for row in training_table.phases(job) if row[1] not in ("adv", "rest")]
    page = (CHECKOUT / "docs" / "benchmarks.md").read_text()

    assert len(rows) > 5
    assert [row for row in rows if f"| {' | '.join(row)} |" not in page] == []


def throughput_in_the_docs(job: training_result.Trained) -> list[str]:
    """Return the columns of the throughput table that docs/benchmarks.md has."""
    columns = (
        "run",
        "steps",
        "step, s",
        "tokens/s",
        "rollout, answer tokens/s",
        "MFU of the update",
        "GPU utilisation, %",
        "highest GPU memory, GiB",
    )
    cells = dict(zip(training_table.THROUGHPUT, training_table.throughput(job)))
    return [cells[column] for column in columns]


UPDATES = ("update-0.5b-1gpu", "update-1.5b-1gpu")
STARTS = (
    *("start-0.5b-1gpu-1", "start-0.5b-1gpu-2"),
    *("grpo-0.5b-1gpu-rows20", "grpo-0.5b-1gpu-nocache", "grpo-0.5b-1gpu-poll"),
)


@pytest.mark.parametrize(
    ("part", "mark"),
    [
        ("the trainer has imported", "the trainer has imported"),
        ("actor and reference have their models", "a worker has its optimizer"),
        ("vLLM's engine starts", "engine starts"),
        ("the engine has its weights", "engine has its model"),
        ("it is compiled and has CUDA graphs", "engine serves"),
        ("the first step begins", "first step begins"),
    ],
)
def test_the_starts_in_the_docs_are_those_of_the_recorded_runs(part: str, mark: str) -> None:
    jobs = [training_result.read(DATA / "trainings" / name, 0) for name in STARTS]
    seconds = [f"{training_table.first_times(job.lines)[mark] - job.launch['began']:.0f}" for job in jobs]

    assert f"| {part} | {' | '.join(seconds)} |" in (CHECKOUT / "docs" / "benchmarks.md").read_text()


def test_the_figures_of_parts_alone_in_the_docs_are_those_of_the_recorded_runs() -> None:
    page = (CHECKOUT / "docs" / "benchmarks.md").read_text()
    updates = {name: training_table.alone("update", DATA / "trainings" / name)[0] for name in UPDATES}
    rollout = json.loads((DATA / "trainings" / "vllm-0.5b-1gpu" / "vllm.json").read_text())

    for name, cells in updates.items():
        assert f"| {' | '.join([name, *cells[3:]])} |" in page
    assert f"made {spaced(rollout['tokens_per_s'])} tokens/s ({spaced(min(rollout['rates']))} to" in page
    of_rollouts = training_result.read(DATA / "trainings" / "grpo-0.5b-1gpu-poll", 1)
    shares = [
        of_rollouts.answer_tokens(row) / row["phases"]["gen"] / rollout["tokens_per_s"] for row in of_rollouts.rows
    ]
    assert f"{statistics.median(shares):.2f} of it, in single steps {min(shares):.2f} to {max(shares):.2f}" in page
    for name, text in {
        "poll": "tokens/s in update_actor, {:.2f} of the",
        "rows20": "tokens/s, {:.2f} of that row",
    }.items():
        job = training_result.read(DATA / "trainings" / f"grpo-0.5b-1gpu-{name}", 1)
        rate = statistics.median(tokens / s for tokens, s in zip(job.tokens(), job.per_step("update_actor")))
        assert f"makes {spaced(rate)} {text.format(rate / float(updates[UPDATES[0]][-2]))}" in page


def spaced(figure: float) -> str:
    return f"{figure:,.0f}".replace(",", " ")


def test_the_figures_of_two_nodes_in_the_docs_are_those_of_the_recorded_run() -> None:
    folder = DATA / "trainings" / "nodes-0.5b-2gpu"
    job = training_result.read(folder, 1)
    row = throughput_in_the_docs(job)
    of_phases = {row[1]: row[2] for row in training_table.phases(job)}
    first = training_result.read(folder, 0).seconds()[0]
    page = (CHECKOUT / "docs" / "benchmarks.md").read_text()

    assert len({event["host"] for event in training_result.read_lines(folder / "events.jsonl")}) == 2
    assert f"| {' | '.join(row)} |" in page
    assert f"{row[2]} s after a first one of {first:.1f} s" in page
    assert f"The update takes {of_phases['update_actor']} s of it" in page


def test_the_end_of_a_lost_node_in_the_docs_is_that_of_the_recorded_run() -> None:
    folder = DATA / "trainings" / "lost-0.5b-2gpu"
    launch = training_result.read(folder, 0).launch
    explained = (folder / "explain.txt").read_text()

    assert (launch["problems"], launch["left"]) == ([], [])
    assert "Node verljob-bench-1 was lost: it sent no heartbeat for 60 s" in explained
    assert (
        f"ended {launch['ended_s']:.1f} s after KILL to all processes of the last node with exit code {launch['code']}"
        in (CHECKOUT / "docs" / "benchmarks.md").read_text()
    )


def test_the_end_without_a_package_in_the_docs_is_that_of_the_recorded_run() -> None:
    launch = training_result.read(DATA / "trainings" / "missing-0.5b-1gpu", 0).launch

    assert (launch["problems"], launch["left"]) == ([], [])
    assert (
        f"exit code {launch['code']}, {launch['ended_s']:.0f} s after the launch"
        in (CHECKOUT / "docs" / "benchmarks.md").read_text()
    )


def test_the_end_by_term_in_the_docs_is_that_of_the_recorded_run() -> None:
    launch = training_result.read(DATA / "trainings" / "term-0.5b-1gpu", 0).launch

    assert (launch["problems"], launch["freed_s"], launch["left"]) == ([], 0, [])
    assert (
        f"ended {launch['ended_s']:.1f} s after TERM to all its processes with exit code {launch['code']}"
        in (CHECKOUT / "docs" / "benchmarks.md").read_text()
    )


def test_the_end_of_the_engine_in_the_docs_is_that_of_the_recorded_run() -> None:
    folder = DATA / "trainings" / "kill-0.5b-1gpu"
    launch = training_result.read(folder, 0).launch

    assert (launch["problems"], launch["freed_s"], launch["left"]) == ([], 0, [])
    assert (folder / "explain.txt").read_text().startswith("first failure vllm: vLLM's engine ended in another process")
    assert (
        f"ended {launch['ended_s']:.1f} s after KILL to vLLM's engine with exit code {launch['code']}"
        in (CHECKOUT / "docs" / "benchmarks.md").read_text()
    )


def test_the_continued_training_in_the_docs_is_the_recorded_one() -> None:
    first, second = (training_result.read(DATA / "trainings" / f"resume-0.5b-1gpu-{job}", 0) for job in (1, 2))
    kl = [row["metrics"]["actor/kl_loss"] for row in (*first.rows, *second.rows)]
    page = (CHECKOUT / "docs" / "benchmarks.md").read_text()

    assert [job.launch["problems"] for job in (first, second)] == [[], []]
    assert [row["step"] for row in (*first.rows, *second.rows)] == [1, 2, 3, 4, 5, 6]
    assert f"after step 3 in {first.per_step('save_checkpoint')[-1]:.1f} s" in page
    assert f"goes on from {kl[2]:.4f} to {kl[-1]:.4f}" in page
    assert kl == sorted(kl)
    assert training_table.first_times(second.lines)["first step begins"] < second.rows[0]["time"]


def test_the_continued_ppo_in_the_docs_is_the_recorded_one() -> None:
    first, second = (training_result.read(DATA / "trainings" / f"ppo-resume-1.5b-1gpu-{job}", 0) for job in (1, 2))
    page = " ".join((CHECKOUT / "docs" / "benchmarks.md").read_text().split())
    losses = [row["metrics"]["critic/vf_loss"] for row in (*first.rows, *second.rows)]

    assert [(job.launch["code"], job.launch["problems"], job.launch["left"]) for job in (first, second)] == [
        (0, [], [])
    ] * 2
    assert [row["step"] for row in (*first.rows, *second.rows)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert f"saved after step 4 in {first.per_step('save_checkpoint')[-1]:.1f} s" in page
    assert f"from {losses[0]:.1f} to {losses[3]:.1f} and in the next four to {losses[-1]:.1f}" in page


def test_the_agreement_of_engine_and_trainer_with_7b_in_the_docs_is_the_recorded_one() -> None:
    rows = training_result.read(DATA / "trainings" / "grpo-7b-2gpu", 1).rows
    page = " ".join((CHECKOUT / "docs" / "benchmarks.md").read_text().split())

    for key, text in {
        "training/rollout_actor_probs_pearson_corr": "and trainer correlate with {:.2f};",
        "rollout_corr/rollout_log_ppl": "log-perplexity of {:.1f} in both",
        "rollout_corr/training_log_ppl": "log-perplexity of {:.1f} in both",
    }.items():
        assert text.format(statistics.median(row["metrics"][key] for row in rows)) in page
