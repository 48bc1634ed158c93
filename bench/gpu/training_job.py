"""One job of bench/gpu/training.py: a training on the launch's path of a node, or vLLM alone, beside nvidia-smi."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gpu import training_result, training_shutdown
from bench.gpu.gpu_job import CHECKOUT, Job, minor, smi, used_mib
from bench.gpu.training_tasks import run_with_times, tasks_of, write_result
from bench.gpu.virtual_nodes import virtual_nodes

RECIPES = {kind: CHECKOUT / "slurm" / "recipes" / f"gsm8k_{kind}.yaml" for kind in ("grpo", "ppo")}
ROLLOUT, UPDATE = Path(__file__).with_name("rollout.py"), Path(__file__).with_name("update.py")
MICRO_BATCH, RECIPES_MICRO_BATCH = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", 8
COMPILE_CACHE = "compile-cache"  # in the folder of inputs
ON_NODES = ("nodes", "lost")
TIME = re.compile(rb"^\d+\.\d{3} ")  # of run_with_times
PACKAGES = ("verl", "vllm", "torch", "ray", "transformers", "flash-attn")
FILES = (
    "metrics.jsonl",
    "events.jsonl",
    "result.json",
    "configuration.json",
    "checks.json",
    "overrides",
    "explanation",
)


@dataclass
class Launch:
    """A job to run, and the folder of its results."""

    folder: Path
    kind: str  # of training.KINDS
    model: str
    random: bool
    gpus: list[str]
    inputs: Path
    overrides: Mapping[str, Any]
    limit_s: float
    alone: bool = True
    """Whether no other job runs on the machine."""
    steps: int = 0
    after: int = 0
    """Step of the checkpoint that it continues from."""
    checkpoints: Path | None = None


def recipe_of(kind: str) -> str:
    return "ppo" if kind.startswith("ppo") else "grpo"


def train(launch: Launch) -> list[str]:
    """Run a training, and copy what the tables need into its folder; return the problems."""
    job = Job(
        [minor(uuid) for uuid in launch.gpus],
        {},
        *(f"{key}={value}" for key, value in launch.overrides.items()),
        recipe=RECIPES[recipe_of(launch.kind)],
    )
    job.environment |= {
        "SLURM_CPUS_PER_TASK": str(len(os.sched_getaffinity(0))),
        "VERLJOB_ATTEMPT": "2" if launch.after else "1",
        "VERLJOB_COMPILE_CACHE": os.environ.get("VERLJOB_COMPILE_CACHE", str(launch.inputs / COMPILE_CACHE)),
        "VERLJOB_DATA": str(launch.inputs / "data"),
        "VERLJOB_MODEL": launch.model,
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "INFO"),  # verl's default is WARN
    }
    if "VERLJOB_CHECKS" in os.environ:
        job.environment["VERLJOB_CHECKS"] = os.environ["VERLJOB_CHECKS"]
    if launch.checkpoints:
        job.environment["VERLJOB_CHECKPOINTS"] = str(launch.checkpoints)
    if launch.random:
        job.environment |= {"VERLJOB_DATA_SOURCE": str(launch.inputs / "raw"), "HF_HUB_OFFLINE": "1"}
    if not launch.gpus:  # a trial without GPUs
        job.environment |= {"VERLJOB_PLATFORM": "cpu", "SLURM_GPUS_ON_NODE": "1", "SLURM_STEP_GPUS": "0"}
        job.environment["SLURM_CPUS_PER_TASK"] = "8"
    before, began = used_mib(launch.gpus) if launch.gpus else [], time.time()
    to_send = training_shutdown.Signal(launch.kind, job)
    with virtual_nodes(max(len(launch.gpus), 2)) if launch.kind in ON_NODES else nullcontext([]) as nodes:
        folders = [node.local for node in nodes]
        leftovers = training_shutdown.Leftovers(job.number, folders, alone=launch.alone)

        def watch(running: Sequence[int]) -> None:
            leftovers.note(running)
            to_send.send_when_due(running)

        with sampled(launch):
            tasks = tasks_of(job, nodes, launch.gpus)
            code, ended = run_with_times(tasks, job.folder, launch.folder / "output", launch.limit_s, watch)
        after = training_shutdown.wait_clean(ended, launch.gpus, before, leftovers)
    write_result(job, [node.name for node in nodes] or [job.environment["SLURMD_NODENAME"]])
    for name in FILES:
        if (job.run_dir / name).exists():
            shutil.copy(job.run_dir / name, launch.folder)
    if launch.kind in training_shutdown.KINDS:
        output = (launch.folder / "output").read_text(errors="replace")
        problems = to_send.problems() + training_shutdown.find_problems(launch.kind, code, job.rows(), output)
        after["ended_s"] = round(ended - (to_send.sent or began), 1)
    else:
        rows = training_result.with_all_gpus(job.rows())
        problems = find_problems(code, rows, launch.steps, launch.after, validated=launch.kind != "start")
    problems += ["GPU memory was not freed"] if after["freed_s"] is None else []
    problems += [f"left: {', '.join(after['left'])}"] if after["left"] else []
    (launch.folder / "explain.txt").write_text(explain(launch.folder), encoding="utf-8")
    if (code or nodes) and (job.run_dir / "nodes").exists():
        logs = [path for path in (job.run_dir / "nodes").rglob("*") if path.is_file()]
        for path in logs:
            copy_end(path, launch.folder / path.relative_to(job.run_dir))
    write_record(launch, began, ended, code=code, problems=problems, **after)
    job.remove()
    return problems


def run_alone(launch: Launch) -> list[str]:
    """Measure a part of the training alone, with the recipe's settings; return the problems."""
    argv = [sys.executable, *PARTS[launch.kind](launch), "--model", launch.model]
    argv += ["--out", str(launch.folder / f"{launch.kind}.json")]
    argv += ["--tokens", str(launch.overrides["data.max_response_length"])]
    began = time.time()
    with (
        sampled(launch),
        (launch.folder / "output").open("wb") as output,
        tempfile.TemporaryDirectory(prefix="part-") as own,  # vLLM leaves its sockets
    ):
        environment = os.environ | {"TMPDIR": own}
        environment |= {"CUDA_VISIBLE_DEVICES": launch.gpus[0]} if launch.gpus else {}
        try:
            run = subprocess.run(
                argv, env=environment, stdout=output, stderr=subprocess.STDOUT, timeout=launch.limit_s, check=False
            )
            code = run.returncode
        except subprocess.TimeoutExpired:
            code = 124
    problems = [f"exit code {code}"] if code else []
    write_record(launch, began, time.time(), code=code, problems=problems)
    return problems


def rollout_part(launch: Launch) -> list[str]:
    """Return the script and its arguments for vLLM alone."""
    settings = {key.rpartition(".")[2]: str(value) for key, value in launch.overrides.items() if ".rollout." in key}
    return [
        *(str(ROLLOUT), "--prompts", str(launch.overrides["data.train_batch_size"])),
        *("--answers", settings.get("n", "5"), "--memory", settings.get("gpu_memory_utilization", "0.6")),
        *("--max-num-seqs", settings.get("max_num_seqs", "256")),
    ]


def update_part(launch: Launch) -> list[str]:
    """Return the script and its arguments for the update alone."""
    return [str(UPDATE), "--rows", str(launch.overrides.get(MICRO_BATCH, RECIPES_MICRO_BATCH))]


PARTS = {"vllm": rollout_part, "update": update_part}


@contextmanager
def sampled(launch: Launch) -> Iterator[None]:
    """Write nvidia-smi's utilisation (percent), memory (MiB) and power (W) of each GPU to smi.jsonl once a second."""
    stop = threading.Event()

    def sample() -> None:
        with (launch.folder / "smi.jsonl").open("w", encoding="utf-8") as file:
            while launch.gpus and not stop.wait(1 - time.time() % 1):
                lines = smi("gpu=utilization.gpu,memory.used,power.draw", launch.gpus)
                gpus = [[float(cell) if cell[:1].isdigit() else None for cell in line] for line in lines]
                file.write(json.dumps({"time": round(time.time(), 3), "gpus": gpus}) + "\n")
                file.flush()

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield
    finally:
        stop.set()
        sampler.join()


def find_problems(
    code: int, rows: Sequence[dict[str, Any]], steps: int, after: int = 0, *, validated: bool = True
) -> list[str]:
    """Return a phrase for each property of a sound training that is missing."""
    found = [f"exit code {code}"] if code else []
    metrics = [row["metrics"] for row in rows]
    last = rows[-1]["step"] if rows else 0
    if last != steps:
        found.append(f"metrics.jsonl ends with step {last} of {steps}")
    if rows and rows[0]["step"] != after + 1:
        found.append(f"metrics.jsonl begins with step {rows[0]['step']}, after the checkpoint of step {after}")
    bad = [row["step"] for row in rows if not 0 < row["metrics"].get("actor/grad_norm", 0) < math.inf]
    if bad:
        found.append(f"actor/grad_norm is not positive in the steps {bad}")
    if any(each.get("critic/score/max", 0) <= each.get("critic/score/min", 0) for each in metrics):
        found.append("all answers of a step have the same reward")
    if validated and rows and not any(name.startswith("val-") for each in metrics for name in each):
        found.append("no step has a validation")
    return found


def explain(folder: Path) -> str:
    """Return the first failure that `invoke job.explain` finds in a job's folder, with its output without times."""
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / folder.name
        shutil.copytree(folder, copy)
        lines = (folder / "output").read_bytes().splitlines(keepends=True)
        (copy / "output").write_bytes(b"".join(TIME.sub(b"", line) for line in lines))
        done = subprocess.run(
            [sys.executable, "-m", "verl_node.explain", str(copy)],
            env={**os.environ, "PYTHONPATH": str(CHECKOUT / "entrypoints")},
            capture_output=True,
            text=True,
            check=False,
        )
        return (done.stdout + done.stderr).replace(str(copy), str(folder))


def copy_end(path: Path, target: Path, most: int = 100_000) -> None:
    """Copy the last bytes of a log."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - most))
        target.write_bytes(log.read(most))


def write_record(launch: Launch, began: float, ended: float, **outcome: Any) -> None:
    """Write what was run and its outcome to launch.json."""
    record = {
        "kind": launch.kind,
        "model": launch.model,
        "random_weights": launch.random,
        "configuration": model_configuration(launch.model),
        "gpus": len(launch.gpus),
        "card": smi("gpu=name", launch.gpus)[0][0] if launch.gpus else "no GPU",
        "versions": versions(),
        "overrides": launch.overrides,
        "began": began,
        "ended": ended,
        **outcome,
    }
    text = json.dumps(record, default=str, indent=1)
    (launch.folder / "launch.json").write_text(text + "\n", encoding="utf-8")


def versions() -> dict[str, str | None]:
    """Return the installed versions of PACKAGES."""
    found: dict[str, str | None] = dict.fromkeys(PACKAGES)
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def model_configuration(model: str) -> dict[str, Any]:
    """Return the model's configuration, empty if it is not on this machine."""
    try:
        from transformers import AutoConfig

        return dict(AutoConfig.from_pretrained(model, local_files_only=True).to_dict())
    except (ImportError, OSError, ValueError):
        return {}
