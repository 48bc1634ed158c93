"""A node on real GPUs: masks, metrics.jsonl against the driver's figures, and leftovers after kills.

    python3 bench/gpu/real_gpus.py [masks] [metrics] [kills] [training]

Run it by the Python of an environment as a bare launch uses it (docs/runtimes.md), on a machine with NVIDIA GPUs that
nobody else uses; about 8 minutes. Every job is one slurm/node.sh with the runtime bare, in the variables that launch.sh
and Slurm would give, without Slurm. Prints a line for each; ends with 1 where something is not as it should be.
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
    AT_ONCE,
    CHECKOUT,
    CUDA,
    HIP,
    NOSET,
    ROCR,
    Job,
    Use,
    minor,
    over,
    parents,
    sampled,
    smi,
    tree,
    used_mib,
    uuids,
)


@dataclass
class Case:
    """``wanted``: the GPUs that the job's actors see, by place among `nvidia-smi -L`; None where it ends with 64."""

    name: str
    masks: dict[str, str]
    given: list[int]
    wanted: list[int] | None
    by_hand: bool = False
    job: Job = field(init=False)


def cases(gpus: Sequence[str]) -> list[Case]:
    """On a machine with one GPU those that need no second."""
    last = len(gpus) - 1
    every = list(range(len(gpus)))
    numbers = ",".join(map(str, every))
    found = [
        Case("no mask", {}, every, every),
        Case("CUDA of all", {CUDA: numbers}, every, every),
        Case("CUDA, HIP and ROCR differ, every GPU is the job's", {CUDA: "0", HIP: "7", ROCR: numbers}, every, every),
        Case("Ray told to set no mask, 1", {NOSET: "1"}, every, every),
        Case("Ray told to set no mask, 0", {NOSET: "0"}, every, every),
        Case("CUDA by UUID", {CUDA: gpus[last]}, [last], [last]),
        Case("by hand, no mask", {}, every, every, by_hand=True),
    ]
    if last:
        one = str(last)
        found += [
            Case(f"CUDA={one}, one GPU", {CUDA: one}, [last], [last]),
            Case("CUDA=0, one GPU", {CUDA: "0"}, [0], [0]),
            Case(f"CUDA, HIP and ROCR say {one}, one GPU", {CUDA: one, HIP: one, ROCR: one}, [last], [last]),
            Case(f"CUDA=0, ROCR={one}, one GPU", {CUDA: "0", ROCR: one}, [0], None),
            Case(f"CUDA={numbers}, one GPU", {CUDA: numbers}, [0], None),
            Case(f"HIP={one} and Ray told to set no mask, one GPU", {HIP: one, NOSET: "1"}, [last], [last]),
            Case("CUDA by the begin of a UUID", {CUDA: gpus[last][:12]}, [last], [last]),
            Case("CUDA in reverse, every GPU is the job's", {CUDA: numbers[::-1]}, every, every),
            Case(f"by hand, CUDA={one}", {CUDA: one}, [], [last], by_hand=True),
            Case(f"by hand, CUDA=0, ROCR={one}", {CUDA: "0", ROCR: one}, [], None, by_hand=True),
        ]
    return found


def judge(case: Case, code: int, gpus: Sequence[str]) -> str:
    """What is wrong with it, empty where nothing is."""
    if case.wanted is None:
        return "" if code == 64 else f"code {code} instead of 64"
    wanted = [gpus[place] for place in case.wanted]
    saw = case.job.saw()
    if code or not saw:
        return f"code {code}"
    if saw["together"]["sees"] != wanted:
        return f"an actor with all GPUs saw {saw['together']['sees']}"
    if sorted(each["sees"] for each in saw["each"]) != [[gpu] for gpu in sorted(wanted)]:
        return f"actors with one GPU each saw {[each['sees'] for each in saw['each']]}"
    if [len(row["gpus"]) for row in case.job.rows()] != [len(wanted)]:
        return f"metrics.jsonl has {case.job.rows()}"
    return ""


def masks() -> bool:
    gpus = uuids()
    good = True
    for place, uuid in enumerate(gpus):
        print(f"GPU {place} of nvidia-smi: {uuid}, /dev/nvidia{minor(uuid)}; node.sh gives docker: {docker_gpu(uuid)}")
        good &= docker_gpu(uuid) == uuid
    todo = cases(gpus)
    for case in todo:
        case.job = Job([minor(gpus[place]) for place in case.given], case.masks, by_hand=case.by_hand)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        codes = list(pool.map(lambda case: case.job.run(), todo))
    for case, code in zip(todo, codes):
        wrong = judge(case, code, gpus)
        counts = [len(each["sees"]) for each in case.job.saw().get("each", [])]
        print(f"{'WRONG' if wrong else 'ok'}\t{case.name}\t{code}\tcounts {counts}\t{case.job.note()}\t{wrong}")
        if wrong:
            print(case.job.said()[-3000:])
        good &= not wrong
        case.job.remove()
    return good


def docker_gpu(uuid: str) -> str:
    """The GPU that node.sh would give to a container for Slurm's number of this card, from a dry run."""
    job = Job([minor(uuid)], {})
    environment = {**job.environment, "VERLJOB_RUNTIME": "docker", "VERLJOB_DRY_RUN": "1", "VERLJOB_IMAGE": "i"}
    done = subprocess.run(job.command, env=environment, capture_output=True, text=True, check=True, cwd=job.folder)
    job.remove()
    found = re.search(r"device=([^\"'\s\\]+)", done.stdout)
    return found[1] if found else done.stdout


def metrics() -> bool:
    """Rows taken in the middle of work, beside what the driver said at that moment."""
    idle = used_mib()
    job = Job([minor(uuid) for uuid in uuids()], {}, "probe.steps=4", "probe.seconds=5", "probe.gib=8")
    code, told = sampled(job)
    print(f"metrics: code {code}; memory in use before: {idle} MiB")
    good = code == 0 and len(job.rows()) == 4
    # Ray may give the first actor, which takes the least memory, any of them.
    placed = {each["sees"][0]: number for number, each in enumerate(job.saw().get("each", []), 1)}
    since = 0.0
    for row in job.rows():
        ours, theirs = in_use(row), over(told, since, row["time"])
        print(f"step {row['step']}: row {ours}, nvidia-smi in turns of 0.2 s {theirs} (mean percent, most MiB)")
        if since:  # before the first row there is also what came before the training
            good &= all(abs(a - b) <= 20 and abs(mib - most) <= 64 for (a, mib), (b, most) in zip(ours, theirs))
            good &= all(mib >= 8192 * placed[gpu] for gpu, (_, mib) in zip(uuids(), ours))
        since = row["time"]
    job.remove()
    return good


def in_use(row: dict[str, Any]) -> Use:
    return [(gpu["utilisation_percent"], gpu["memory_used_bytes"] >> 20) for gpu in row["gpus"]]


def training() -> bool:
    """verl's main_ppo on the rehearsal's data and model: FSDP2 over the GPUs, rollouts by transformers on the CPU."""
    gpus = uuids()
    recipe = CHECKOUT / "slurm" / "recipes" / "demo_cpu.yaml"
    job = Job([minor(uuid) for uuid in gpus], {}, "trainer.device=cuda", recipe=recipe)
    job.environment |= {
        "SLURM_CPUS_PER_TASK": str(len(os.sched_getaffinity(0))),
        "VERL_USE_EXTERNAL_MODULES": "verl_cpu.rollout",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,P2P",
    }
    code, told = sampled(job)
    print(f"training: code {code}")
    for pattern in (r"NCCL version \S+", r"via \S+", r"rank \d nranks \d .*Init COMPLETE"):
        print(f"NCCL: {sorted(set(re.findall(pattern, job.said())))[:4]}")
    print(f"seconds: {json.loads((job.run_dir / 'result.json').read_text())['phases']}")
    norms, since = [], 0.0
    for row in job.rows():
        norms.append(row["metrics"].get("actor/grad_norm", 0.0))
        print(
            f"step {row['step']}: grad_norm {norms[-1]:.4f}, reward {row['metrics'].get('critic/score/mean')}, "
            f"{row['phases'].get('step', 0):.1f} s, row {in_use(row)}, nvidia-smi {over(told, since, row['time'])}"
        )
        since = row["time"]
    shards = sorted(path.name for path in job.run_dir.glob("checkpoints/global_step_*/actor/model_*.pt"))
    print(f"shards: {shards}")
    good = code == 0 and len(shards) == len(gpus) and bool(norms) and all(norm > 0 for norm in norms)
    if not good:
        print(job.said()[-6000:])
    job.remove()
    return good


@dataclass
class Kill:
    name: str
    of: Callable[[int, int], list[int]]  # node.sh and the supervisor
    signal: signal.Signals
    sweep: bool = False


KILLS = [
    Kill("TERM to node.sh, as scancel", lambda node, supervisor: [node], signal.SIGTERM),
    Kill("KILL to the supervisor", lambda node, supervisor: [supervisor], signal.SIGKILL),
    Kill("KILL to node.sh", lambda node, supervisor: [node], signal.SIGKILL),
    Kill("KILL to both, then the sweep", lambda node, supervisor: [node, supervisor], signal.SIGKILL, sweep=True),
]


def kills() -> bool:
    return False not in [kill(each) for each in KILLS]


def kill(each: Kill) -> bool:
    """How long processes and GPU memory outlive it."""
    before = used_mib()
    job = Job([minor(uuid) for uuid in uuids()], {}, "probe.steps=1", "probe.seconds=600", "probe.gib=8")
    node = job.start().pid
    job.until("^saw |\nsaw ")
    time.sleep(2)
    held, family = used_mib(), tree(node)
    supervisor = next(
        pid for pid in family if Path(f"/proc/{pid}/cmdline").read_text().split("\0")[1:3] == ["-m", "verl_node"]
    )
    working = len(smi("compute-apps=pid"))
    killed = time.monotonic()
    for pid in each.of(node, supervisor):
        os.kill(pid, each.signal)
    if each.sweep:
        job.sweep()
    gone = freed = None
    while time.monotonic() - killed < 60 and not (gone and freed):
        after = time.monotonic() - killed
        job.process.poll()  # as Slurm does: what is not waited for still takes the signals of its children
        gone = gone or (after if not family & parents().keys() else None)
        freed = freed or (after if all(now <= then + 64 for now, then in zip(used_mib(), before)) else None)
    code = job.process.wait(60)
    left = sorted(family & parents().keys())
    if code < 0:
        job.sweep()
    print(
        f"{each.name}: {len(family)} processes, {working} of them on GPUs; MiB in use {before}, {held} when killed, "
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
    parts = {"masks": masks, "metrics": metrics, "kills": kills, "training": training}
    wanted = parser.parse_args().parts or list(parts)
    return 1 if False in [parts[name]() for name in wanted] else 0


if __name__ == "__main__":
    sys.exit(main())
