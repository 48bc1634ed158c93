"""A node on real GPUs: masks, metrics.jsonl against the driver's figures, and leftovers after kills.

    python3 bench/gpu/real_gpus.py [masks] [metrics] [kills] [training]

Run it with the Python of an environment for bare launches (docs/runtimes.md), on an otherwise unused machine with
NVIDIA GPUs; it takes about 8 minutes. Every job is one slurm/node.sh with the runtime bare and the variables that
launch.sh and Slurm would set, without Slurm. Prints a line for each job; exits with 1 if a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.gpu.gpu_job import (
    CHECKOUT,
    CUDA,
    HIP,
    NOSET,
    PARALLEL_JOBS,
    ROCR,
    Job,
    Use,
    minor,
    parents,
    process_tree,
    run_sampled,
    smi,
    summarize,
    used_mib,
    uuids,
)


@dataclass
class Case:
    """Masks of a job, and indexes of GPUs: ``given`` by Slurm, ``expected`` in actors (None: the job exits with 64)."""

    name: str
    masks: dict[str, str]
    given: list[int]
    expected: list[int] | None
    without_slurm: bool = False
    job: Job = field(init=False)


def cases(gpus: Sequence[str]) -> list[Case]:
    """Return all cases; on a machine with one GPU those that need no second one."""
    last = len(gpus) - 1
    every = list(range(len(gpus)))
    numbers = ",".join(map(str, every))
    selected = [
        Case("no mask", {}, every, every),
        Case("CUDA of all", {CUDA: numbers}, every, every),
        Case("CUDA, HIP and ROCR differ, every GPU is the job's", {CUDA: "0", HIP: "7", ROCR: numbers}, every, every),
        Case("Ray sets no mask, 1", {NOSET: "1"}, every, every),
        Case("Ray sets no mask, 0", {NOSET: "0"}, every, every),
        Case("CUDA by UUID", {CUDA: gpus[last]}, [last], [last]),
        Case("without Slurm, no mask", {}, every, every, without_slurm=True),
    ]
    if last:
        one = str(last)
        selected += [
            Case("no mask, one GPU", {}, [last], [last]),
            Case(f"CUDA={one}, one GPU", {CUDA: one}, [last], [last]),
            Case("CUDA=0, one GPU", {CUDA: "0"}, [0], [0]),
            Case(f"CUDA, HIP and ROCR are {one}, one GPU", {CUDA: one, HIP: one, ROCR: one}, [last], [last]),
            Case(f"CUDA=0, ROCR={one}, one GPU", {CUDA: "0", ROCR: one}, [0], None),
            Case(f"CUDA={numbers}, one GPU", {CUDA: numbers}, [0], None),
            Case(f"HIP={one} and Ray sets no mask, one GPU", {HIP: one, NOSET: "1"}, [last], [last]),
            Case("CUDA by the prefix of a UUID", {CUDA: gpus[last][:12]}, [last], [last]),
            Case("CUDA in reverse, every GPU is the job's", {CUDA: numbers[::-1]}, every, every),
            Case(f"without Slurm, CUDA={one}", {CUDA: one}, [], [last], without_slurm=True),
            Case(f"without Slurm, CUDA=0, ROCR={one}", {CUDA: "0", ROCR: one}, [], None, without_slurm=True),
        ]
    return selected


def problem(case: Case, code: int, gpus: Sequence[str]) -> str:
    """Describe the difference to the expected result; empty if there is none."""
    if case.expected is None:
        return "" if code == 64 else f"code {code} instead of 64"
    expected = [gpus[index] for index in case.expected]
    visible = case.job.visible_gpus()
    if code or not visible:
        return f"code {code}"
    if visible["together"]["uuids"] != expected:
        return f"an actor with all GPUs has {visible['together']['uuids']}"
    if sorted(actor["uuids"] for actor in visible["each"]) != [[gpu] for gpu in sorted(expected)]:
        return f"actors with one GPU each have {[actor['uuids'] for actor in visible['each']]}"
    if [len(row["gpus"]) for row in case.job.rows()] != [len(expected)]:
        return f"metrics.jsonl has {case.job.rows()}"
    return ""


def check_masks() -> bool:
    """Start a job for every case, and compare the GPUs that its actors see."""
    gpus = uuids()
    good = True
    for index, uuid in enumerate(gpus):
        print(f"GPU {index} of nvidia-smi: {uuid}, /dev/nvidia{minor(uuid)}; node.sh gives docker: {docker_gpu(uuid)}")
        good &= docker_gpu(uuid) == uuid
    selected = cases(gpus)
    for case in selected:
        case.job = Job([minor(gpus[index]) for index in case.given], case.masks, without_slurm=case.without_slurm)
    with ThreadPoolExecutor(PARALLEL_JOBS) as pool:
        codes = list(pool.map(lambda case: case.job.run(), selected))
    for case, code in zip(selected, codes):
        wrong = problem(case, code, gpus)
        counts = [len(actor["uuids"]) for actor in case.job.visible_gpus().get("each", [])]
        print(f"{'WRONG' if wrong else 'ok'}\t{case.name}\t{code}\tcounts {counts}\t{case.job.note()}\t{wrong}")
        if wrong:
            print(case.job.text()[-3000:])
        good &= not wrong
        case.job.remove()
    return good


def docker_gpu(uuid: str) -> str:
    """Return the GPU that node.sh gives to a container for the minor number of this GPU, from a dry run."""
    job = Job([minor(uuid)], {})
    environment = {**job.environment, "VERLJOB_RUNTIME": "docker", "VERLJOB_DRY_RUN": "1", "VERLJOB_IMAGE": "i"}
    done = subprocess.run(job.command, env=environment, capture_output=True, text=True, check=True, cwd=job.folder)
    job.remove()
    device = re.search(r"device=([^\"'\s\\]+)", done.stdout)
    return device[1] if device else done.stdout


def check_metrics() -> bool:
    """Compare the rows of metrics.jsonl, logged while GPUs are busy, with nvidia-smi at that time."""
    idle = used_mib()
    job = Job([minor(uuid) for uuid in uuids()], {}, "probe.steps=4", "probe.seconds=5", "probe.gib=8")
    code, samples = run_sampled(job)
    print(f"metrics: code {code}; memory in use before: {idle} MiB")
    good = code == 0 and len(job.rows()) == 4
    # Ray may give any GPU to the first actor, which allocates the least memory.
    actors = job.visible_gpus().get("each", [])
    number_of = {actor["uuids"][0]: number for number, actor in enumerate(actors, 1)}
    since = 0.0
    for row in job.rows():
        ours, theirs = in_use(row), summarize(samples, since, row["time"])
        print(f"step {row['step']}: row {ours}, nvidia-smi every 0.2 s {theirs} (mean percent, maximum MiB)")
        if since:  # samples before the first row include the time before the training
            pairs = list(zip(ours, theirs))
            good &= all(abs(percent - mean) <= 20 and abs(mib - peak) <= 64 for (percent, mib), (mean, peak) in pairs)
            good &= all(mib >= 8192 * number_of[gpu] for gpu, (_, mib) in zip(uuids(), ours))
        since = row["time"]
    job.remove()
    return good


def in_use(row: dict[str, Any]) -> Use:
    return [(gpu["utilisation_percent"], gpu["memory_used_bytes"] >> 20) for gpu in row["gpus"]]


def check_training() -> bool:
    """Run verl's main_ppo with demo_cpu's data and model: FSDP2 over the GPUs, rollouts by transformers on the CPU."""
    gpus = uuids()
    recipe = CHECKOUT / "slurm" / "recipes" / "demo_cpu.yaml"
    job = Job([minor(uuid) for uuid in gpus], {}, "trainer.device=cuda", recipe=recipe)
    job.environment |= {
        "SLURM_CPUS_PER_TASK": str(len(os.sched_getaffinity(0))),
        "VERL_USE_EXTERNAL_MODULES": "verl_cpu.rollout",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,P2P",
    }
    code, samples = run_sampled(job)
    print(f"training: code {code}")
    for pattern in (r"NCCL version \S+", r"via \S+", r"rank \d nranks \d .*Init COMPLETE"):
        print(f"NCCL: {sorted(set(re.findall(pattern, job.text())))[:4]}")
    print(f"seconds: {json.loads((job.run_dir / 'result.json').read_text())['phases']}")
    norms, since = [], 0.0
    for row in job.rows():
        norms.append(row["metrics"].get("actor/grad_norm", 0.0))
        theirs = summarize(samples, since, row["time"])
        print(
            f"step {row['step']}: grad_norm {norms[-1]:.4f}, reward {row['metrics'].get('critic/score/mean')}, "
            f"{row['phases'].get('step', 0):.1f} s, row {in_use(row)}, nvidia-smi {theirs}"
        )
        since = row["time"]
    shards = sorted(path.name for path in job.run_dir.glob("checkpoints/global_step_*/actor/model_*.pt"))
    print(f"shards: {shards}")
    good = code == 0 and len(shards) == len(gpus) and bool(norms) and all(norm > 0 for norm in norms)
    if not good:
        print(job.text()[-6000:])
    job.remove()
    return good


@dataclass
class Kill:
    name: str
    pids: Callable[[int, int], list[int]]  # of node.sh and the supervisor
    signal: signal.Signals
    sweep: bool = False


KILLS = [
    Kill("TERM to node.sh, as by scancel", lambda node, supervisor: [node], signal.SIGTERM),
    Kill("KILL to the supervisor", lambda node, supervisor: [supervisor], signal.SIGKILL),
    Kill("KILL to node.sh", lambda node, supervisor: [node], signal.SIGKILL),
    Kill("KILL to both, then the sweep", lambda node, supervisor: [node, supervisor], signal.SIGKILL, sweep=True),
]


def check_kills() -> bool:
    return False not in [check_kill(kill) for kill in KILLS]


def check_kill(kill: Kill) -> bool:
    """Kill a job, and measure the time until its processes and GPU memory are gone."""
    before = used_mib()
    job = Job([minor(uuid) for uuid in uuids()], {}, "probe.steps=1", "probe.seconds=600", "probe.gib=8")
    node = job.start().pid
    job.wait_for("(?m)^visible ")
    time.sleep(2)
    used, pids = used_mib(), process_tree(node)
    supervisor = next(
        pid for pid in pids if Path(f"/proc/{pid}/cmdline").read_text().split("\0")[1:3] == ["-m", "verl_node"]
    )
    on_gpus = len(smi("compute-apps=pid"))
    killed = time.monotonic()
    for pid in kill.pids(node, supervisor):
        os.kill(pid, kill.signal)
    if kill.sweep:
        job.sweep()
    gone = freed = None
    while time.monotonic() - killed < 60 and not (gone and freed):
        after = time.monotonic() - killed
        job.process.poll()  # as Slurm does: a zombie still gets the signals of its children
        gone = gone or (after if not pids & parents().keys() else None)
        freed = freed or (after if all(mib <= idle + 64 for mib, idle in zip(used_mib(), before)) else None)
    code = job.process.wait(60)
    left = sorted(pids & parents().keys())
    if code < 0:
        job.sweep()
    print(
        f"{kill.name}: {len(pids)} processes, {on_gpus} of them on GPUs; MiB in use {before}, {used} when killed, "
        f"{used_mib()} after; processes gone in {gone or -1:.1f} s, memory free in {freed or -1:.1f} s; "
        f"left: {left}, on GPUs: {len(smi('compute-apps=pid'))}, folders: "
        f"{[path.name for path in Path('/tmp').glob(f'verljob-*-{job.number}-*')]}; node.sh ended with {code}; "  # noqa: S108
        f"{job.note()}"
    )
    job.remove()
    return bool(gone and freed and gone < 15 and not left)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="masks, metrics, kills, training; by default all")
    checks = {"masks": check_masks, "metrics": check_metrics, "kills": check_kills, "training": check_training}
    selected = parser.parse_args().parts or list(checks)
    return 1 if False in [checks[name]() for name in selected] else 0


if __name__ == "__main__":
    sys.exit(main())
