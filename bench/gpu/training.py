"""GRPO and PPO with vLLM rollouts on this machine's GPUs, on the launch's path of a node; and their parts alone.

    python3 bench/gpu/training.py [--out FOLDER] [--gpus N,…] [--steps N] [--limit S] [--until S]
                                  [--override KEY=VALUE]… RUN…

A RUN is KIND:SHAPE. KIND is grpo or ppo (the recipes gsm8k_grpo and gsm8k_ppo), vllm (the rollouts' engine alone,
rollout.py), update (forward and backward pass of the actor alone, update.py), ppo-resume, or GRPO as one of

    resume   a job that saves and ends, and a second one that continues from its checkpoint
    start    a job of one small step with an empty cache of compiled code, and a second one with that cache
    term     TERM in a rollout, to all processes, as by scancel
    kill     KILL in a rollout, to vLLM's engine
    nodes    a node for each GPU, as network namespaces of this machine (virtual_nodes.py)
    lost     the same, and KILL in a rollout, to all processes of the last node
    missing  without a package that the engine imports

SHAPE is 0.5b, 1.5b or 7b: a Qwen2 with that model's configuration and RANDOM weights, questions of GSM8K's lengths and
a reward over tokens (training_inputs.py, reward.py). With VERLJOB_MODEL=Qwen/Qwen2-7B-Instruct in the environment SHAPE
is left out; model, data and reward are then the real ones.

Run it with the Python of an environment for bare launches that has vLLM (docs/runtimes.md; bench/gpu/wheels/ for a
machine without a network), on an otherwise unused machine, or beside another one with other --gpus and --inputs: files
that a job leaves are then not looked for, because they may be the other's. A training is one slurm/node.sh with the
runtime bare and the variables that launch.sh and Slurm would set; VERLJOB_COMPILE_CACHE=0 turns its cache of compiled
code off. A GPU's batch is its share of the recipes' 16 GPUs, half of it with GRPO. Each job leaves a folder and its
.tar.gz in --out, from which training_table.py makes the tables. Exits with 1 if a job failed, had no time left, left
processes or files, or has an implausible result.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.gpu import training_inputs, training_job, training_result, training_shutdown, training_tasks
from bench.gpu.gpu_job import uuids
from bench.gpu.training_job import Launch

RESUMED = ("resume", "ppo-resume")
KINDS = ("grpo", "ppo", *training_result.ALONE, *RESUMED, "start", "nodes", *training_shutdown.KINDS)
REWARD = Path(__file__).with_name("reward.py")
# A GPU's share is 64 and 16: the recipes' 1024 and 256 are for 16 GPUs. GRPO has five answers to a prompt, and seven
# steps with half of it take as long as PPO's.
BATCHES = {"grpo": (32, 8), "ppo": (64, 16)}
ANSWER_TOKENS = 1024
SMALL_BATCH = (16, 8)
STEPS = 7
STEPS_OF = {"resume": 3, "ppo-resume": 4, "start": 1, "term": 4, "kill": 4, "lost": 4}  # of the first job
SMALL = ("start", "term", "kill", "lost")  # also without a validation
LEAST_S = 30  # a job is not started with less time
# The engine's share of a GPU of 80 GB: actor and critic of a training keep 16 bytes for each of their weights.
ENGINE_MEMORY = {"ppo:0.5b": 0.5, "ppo:1.5b": 0.2, "grpo:1.5b": 0.5, "grpo:7b": 0.35, "ppo:7b": 0.2}
# In bfloat16, 8 bytes for each weight: for two GPUs of 80 GB. The batch is smaller, or a step would take minutes.
OF_7B = {
    "actor_rollout_ref.actor.fsdp_config.model_dtype": "bfloat16",
    "actor_rollout_ref.ref.fsdp_config.model_dtype": "bfloat16",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 8,
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": 8,
}
BATCH_OF_7B = (16, 4)
# The critic has no gradient checkpointing: the activations of 16 rows take about 30 GB with 0.5 B weights.
OF_PPO_1_5B = {"critic.ppo_micro_batch_size_per_gpu": 2}
OUTPUT_BYTES = 3 << 20
STACK_DUMP = re.compile(r"logging\.cc:\d+:")  # lines of Ray's


@dataclass
class Options:
    out: Path
    inputs: Path
    steps: int
    limit_s: float
    end: float
    given: Sequence[str]
    gpus: list[str]
    alone: bool
    """Whether these are all GPUs of the machine."""


def overrides(
    kind: str, shape: str, gpus: int, steps: int, given: Sequence[str], *, save: bool = False
) -> dict[str, Any]:
    """Return the deviations from the recipe; ``given`` ones win."""
    recipe = training_job.recipe_of(kind)
    prompts, mini_batch = BATCH_OF_7B if shape == "7b" else BATCHES[recipe]
    if kind in SMALL:
        prompts, mini_batch = SMALL_BATCH
    changes: dict[str, Any] = {
        "data.train_batch_size": prompts * gpus,
        "actor_rollout_ref.actor.ppo_mini_batch_size": mini_batch * gpus,
        "data.max_response_length": ANSWER_TOKENS,
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
        "actor_rollout_ref.rollout.ignore_eos": True,
        "trainer.total_training_steps": steps,
        "trainer.test_freq": -1 if kind in SMALL else steps,
        "trainer.save_freq": steps if save else -1,
    }
    if shape:
        changes["actor_rollout_ref.rollout.gpu_memory_utilization"] = ENGINE_MEMORY.get(f"{recipe}:{shape}", 0.6)
        changes["reward.custom_reward_function.path"] = REWARD
    if shape == "7b":
        changes |= OF_7B
    if (recipe, shape) == ("ppo", "1.5b"):
        changes |= OF_PPO_1_5B
    return changes | dict(text.split("=", 1) for text in given)


def run(kind: str, shape: str, options: Options) -> dict[Path, list[str]]:
    """Do one RUN; return the folder and the problems of each of its jobs."""
    if shape:
        began = time.monotonic()
        make = [sys.executable, training_inputs.__file__, str(options.inputs), shape]
        # A process of its own, since one that used a GPU keeps some of its memory; on this run's GPUs, not another's.
        subprocess.run(make, check=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(options.gpus)})
        print(f"{shape}: random weights are there after {time.monotonic() - began:.0f} s", flush=True)
    compiled = options.inputs / training_job.COMPILE_CACHE
    if kind == "start":
        shutil.rmtree(compiled, ignore_errors=True)
    compiled.mkdir(parents=True, exist_ok=True)
    steps = STEPS_OF.get(kind, options.steps)
    checkpoints(options).mkdir(parents=True, exist_ok=True)
    first = job(kind, shape, options, steps)
    jobs = {first.folder: do(first)}
    if kind in (*RESUMED, "start") and not jobs[first.folder]:
        second = job(kind, shape, options, steps) if kind == "start" else job(kind, shape, options, 2 * steps, steps)
        jobs[second.folder] = do(second)
    shutil.rmtree(checkpoints(options), ignore_errors=True)
    return jobs


def job(kind: str, shape: str, options: Options, steps: int, after: int = 0) -> Launch:
    """Make the folder of a job, whose time is what is left before the last seconds, in which it ends.

    :param after: step of the checkpoint that it continues from.
    """
    model = str(options.inputs / "models" / shape) if shape else os.environ["VERLJOB_MODEL"]
    name = f"{kind}-{shape or 'real'}-{len(options.gpus)}gpu"
    folder = options.out / f"{name}-{1 + sum(path.is_dir() for path in options.out.glob(f'{name}-*'))}"
    folder.mkdir()
    return Launch(
        folder=folder,
        kind=kind,
        model=model,
        random=bool(shape),
        gpus=options.gpus,
        alone=options.alone,
        inputs=options.inputs,
        overrides=overrides(
            kind, shape, max(len(options.gpus), 1), steps, options.given, save=kind in RESUMED and not after
        ),
        limit_s=min(options.limit_s, options.end - time.time() - training_tasks.END_S - training_shutdown.FREE_S),
        steps=steps,
        after=after,
        checkpoints=checkpoints(options) if kind in RESUMED else None,
    )


def checkpoints(options: Options) -> Path:
    return options.inputs / "checkpoints"


def do(launch: Launch) -> list[str]:
    """Run a job if it has time; print its outcome, and pack its folder."""
    if launch.limit_s < LEAST_S:
        problems = [f"not run: {max(launch.limit_s, 0):.0f} s are left"]
    else:
        problems = RUNNERS.get(launch.kind, training_job.train)(launch)
    print(f"{'FAILED' if problems else 'ok'}\t{launch.folder.name}\t{'; '.join(problems)}", flush=True)
    if problems and (launch.folder / "output").exists():
        lines = (launch.folder / "output").read_text(errors="replace").splitlines()
        print("\n".join(line for line in lines if not STACK_DUMP.search(line))[-3000:], flush=True)
    archive(launch.folder)
    return problems


def train_without_package(launch: Launch) -> list[str]:
    """Run a training without MISSING; return the problems."""
    folder = training_shutdown.package_folder(training_shutdown.MISSING)
    if folder is None:
        return [f"{training_shutdown.MISSING} is not a package below {sys.prefix}"]
    with training_shutdown.moved_away(folder):
        return training_job.train(launch)


RUNNERS = {**dict.fromkeys(training_result.ALONE, training_job.run_alone), "missing": train_without_package}


def archive(folder: Path) -> Path:
    """Pack a job's folder; of a long output only its begin and end."""
    output = folder / "output"
    content = output.read_bytes() if output.exists() else b""
    if len(content) > 2 * OUTPUT_BYTES:
        left_out = f"\n… {len(content) - 2 * OUTPUT_BYTES} bytes are left out …\n".encode()
        output.write_bytes(content[:OUTPUT_BYTES] + left_out + content[-OUTPUT_BYTES:])
    packed = folder.with_name(f"{folder.name}.tar.gz")
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(folder, folder.name)
    return packed


def parse(arguments: Sequence[str] | None = None) -> tuple[Options, list[tuple[str, str]]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="KIND:SHAPE, or KIND with VERLJOB_MODEL")
    parser.add_argument("--out", type=Path, default=Path("training-runs"), help="folder of the results")
    # Not in /tmp, where another account could have made the folder of a model.
    parser.add_argument("--inputs", type=Path, default=Path("training-inputs"), help="folder of models and data")
    parser.add_argument(
        "--gpus",
        type=lambda text: list(map(int, text.split(","))),
        metavar="N,…",
        help="by nvidia-smi's numbers; default: all",
    )
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of a training; the first is a warm-up")
    parser.add_argument("--limit", type=float, default=540, metavar="S", help="seconds for each job")
    parser.add_argument("--until", type=float, default=math.inf, metavar="S", help="seconds for all jobs")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="for the trainings")
    given = parser.parse_args(arguments)
    runs = []
    for text in given.runs:
        kind, _, shape = text.partition(":")
        if kind not in KINDS or (shape not in training_inputs.SHAPES if "VERLJOB_MODEL" not in os.environ else shape):
            parser.error(f"{text} is no KIND:SHAPE, or KIND with VERLJOB_MODEL")
        runs.append((kind, shape))
    every = uuids() if shutil.which("nvidia-smi") else []
    if not set(given.gpus or []) <= set(range(len(every))):
        parser.error(f"--gpus: this machine has the GPUs {list(range(len(every)))}")
    gpus = every if given.gpus is None else [every[number] for number in given.gpus]
    end = time.time() + given.until
    out, inputs = given.out.resolve(), given.inputs.resolve()
    if len(gpus) == 1 and any(kind in training_job.ON_NODES for kind, _ in runs):
        parser.error(f"{' and '.join(training_job.ON_NODES)} need two GPUs or more, one for each node")
    if not shutil.which("ip") and any(kind in training_job.ON_NODES for kind, _ in runs):
        parser.error(f"{' and '.join(training_job.ON_NODES)} need the command ip (the package iproute2)")
    alone = len(gpus) == len(every)
    return Options(out, inputs, given.steps, given.limit, end, given.override, gpus, alone), runs


def main() -> int:
    options, runs = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    outcomes = [problems for kind, shape in runs for problems in run(kind, shape, options).values()]
    return 1 if any(outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
