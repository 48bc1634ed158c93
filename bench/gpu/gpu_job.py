"""A job of one node.sh with the runtime bare on a machine with NVIDIA GPUs; figures of nvidia-smi and /proc."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
PROBE = Path(__file__).with_name("gpu_probe.py")
CUDA, HIP, ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
NOSET = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"
END_S = 300.0
PARALLEL_JOBS = 4
Use = list[tuple[int, int]]
"""Utilization in percent and memory in MiB of each GPU."""
RECIPE = """\
platform: cuda
accelerator: true
module: gpu_probe
data: []
model: null
overrides: {probe.steps: 1, probe.seconds: 1, probe.gib: 1}
"""


def smi(query: str, gpus: Sequence[str] = ()) -> list[list[str]]:
    """Return nvidia-smi's cells for each of the GPUs, by default all of them."""
    command = [
        "nvidia-smi",
        f"--query-{query}",
        "--format=csv,noheader,nounits",
        *([f"--id={','.join(gpus)}"] if gpus else []),
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [[cell.strip() for cell in line.split(",")] for line in answer.splitlines()]


def uuids() -> list[str]:
    return [uuid for (uuid,) in smi("gpu=uuid")]


def minor(uuid: str) -> int:
    """Return the number of the GPU's /dev/nvidia<minor>, which Slurm uses."""
    for file in Path("/proc/driver/nvidia/gpus").glob("*/information"):
        text = file.read_text()
        found = re.search(r"Device Minor:\s*(\d+)", text)
        if uuid in text and found:
            return int(found[1])
    raise RuntimeError(f"/proc/driver/nvidia/gpus has no minor number for {uuid}")


def used_mib(gpus: Sequence[str] = ()) -> list[int]:
    return [int(mib) for (mib,) in smi("gpu=memory.used", gpus)]


def parents() -> dict[int, int]:
    """Return the parent of every process that has not ended."""
    parent_of = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            parent_of[int(stat.parent.name)] = int(parent)
    return parent_of


def process_tree(root: int) -> set[int]:
    """Return the pids of a process and all its descendants."""
    parent_of = parents()
    pids, queue = {root}, [root]
    while queue:
        parent = queue.pop()
        children = [pid for pid, other in parent_of.items() if other == parent]
        pids.update(children)
        queue += children
    return pids


class Job:
    """One node.sh, or one entrypoint ``without_slurm``; ``gpus`` are the minor numbers, as in SLURM_STEP_GPUS."""

    _count = 0

    def __init__(
        self,
        gpus: Sequence[int],
        masks: dict[str, str],
        *overrides: str,
        without_slurm: bool = False,
        recipe: Path | None = None,
    ) -> None:
        Job._count += 1
        self.number = os.getpid() % 10000 * 100 + Job._count
        self.folder = Path(tempfile.mkdtemp(prefix="gpus-"))
        self.run_dir = self.folder / "run"
        (self.folder / "recipe.yaml").write_text(RECIPE)
        inherited = {name: value for name, value in os.environ.items() if not re.match("SLURM|VERLJOB_", name)}
        first = 31000 + min(gpus, default=0) * 100 + Job._count * 10  # other jobs at the same time have other GPUs
        self.environment = {
            **{name: value for name, value in inherited.items() if name not in (CUDA, HIP, ROCR, NOSET)},
            "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
            "VERLJOB_HOME": str(CHECKOUT),
            "VERLJOB_PLATFORM": "cuda",
            "VERLJOB_RECIPE": str(recipe or self.folder / "recipe.yaml"),
            "VERLJOB_DATA": str(self.folder / "data"),
            "VERLJOB_RUN_DIR": str(self.run_dir),
            "VERLJOB_OVERRIDES": "\n".join(overrides),
            "VERLJOB_HEAD_PORTS": f"{first},{first + 1},{first + 2}",
            "VERLJOB_DASHBOARD": "0",
            **masks,
        }
        if without_slurm:
            self.run_dir.mkdir()
            (self.folder / "out").mkdir()
            self.command = [str(CHECKOUT / "entrypoints" / "entrypoint.sh"), "node", "--head"]
            self.environment |= {
                "PYTHONPATH": f"{CHECKOUT}/entrypoints",
                "VERLJOB_OUT": str(self.folder / "out"),
                "VERLJOB_RAY_TEMP_DIR": str(self.folder / "ray"),
                "VERLJOB_PORT_BLOCK": f"{20000 + Job._count * 512}-{20511 + Job._count * 512}",
            }
        else:
            self.command = ["bash", str(CHECKOUT / "slurm" / "node.sh")]
            self.environment |= self._step_environment(gpus)

    def _step_environment(self, gpus: Sequence[int]) -> dict[str, str]:
        host = os.uname().nodename
        return {
            "SLURM_JOB_ID": str(self.number),
            "SLURM_JOB_NODELIST": host,
            "SLURM_NODEID": "0",
            "SLURM_NNODES": "1",
            "SLURMD_NODENAME": host,
            "SLURM_CPUS_PER_TASK": str(max(8, len(os.sched_getaffinity(0)) // PARALLEL_JOBS)),
            "SLURM_GPUS_ON_NODE": str(len(gpus)),
            "SLURM_STEP_GPUS": ",".join(map(str, gpus)),
            "SLURM_SUBMIT_DIR": str(self.folder),
            "VERLJOB_PROFILE": "",
            "VERLJOB_RUNTIME": "bare",
            "VERLJOB_IMAGE": sys.prefix,
            "VERLJOB_ATTEMPT": "1",
            "VERLJOB_HEAD_NODE": host,
            "VERLJOB_NODELIST_HOSTS": host,
            "VERLJOB_PORT_RANGE": "20000-30900",
            "VERLJOB_PORTS": "512",
            "VERLJOB_STALL_S": "20",
            "VERLJOB_TOKEN": os.urandom(32).hex(),
        }

    def start(self) -> subprocess.Popen[bytes]:
        # The supervisor gets another PYTHONPATH, so Python finds the training in its working directory.
        shutil.copy(PROBE, self.folder)
        self.output = self.folder / "output"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                self.command, cwd=self.folder, env=self.environment, stdout=output, stderr=subprocess.STDOUT
            )
        return self.process

    def run(self) -> int:
        try:
            return self.start().wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            return self.process.wait()

    def sweep(self) -> None:
        """Clean up after a killed node.sh, as launch.sh does by a step."""
        subprocess.run([*self.command, "sweep"], env=self.environment, check=True, capture_output=True)

    def text(self) -> str:
        """Return the output of node.sh so far."""
        return self.output.read_text(errors="replace")

    def wait_for(self, pattern: str) -> None:
        end = time.monotonic() + END_S
        while not re.search(pattern, self.text()):
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError(f"the output does not match {pattern}:\n{self.text()}")
            time.sleep(0.1)

    def visible_gpus(self) -> dict[str, Any]:
        """Return the GPUs that the actors of gpu_probe.py printed, empty before that."""
        line = re.search(r"^visible (.*)$", self.text(), re.MULTILINE)
        return dict(json.loads(line[1])) if line else {}

    def rows(self) -> list[dict[str, Any]]:
        file = self.run_dir / "metrics.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def note(self) -> str:
        """Return the masks that the supervisor logged for its actor, else its verdict."""
        patterns = (r" ran at .*?\(Python \S+, (.*)\)", r"\tcause=([^\t]*)", r"verdict: (.*)")
        match = next(filter(None, (re.search(pattern, self.text()) for pattern in patterns)), None)
        return match[1] if match else self.text()[-300:]

    def remove(self) -> None:
        shutil.rmtree(self.folder)


def summarize(samples: Sequence[tuple[float, Use]], since: float, until: float) -> Use:
    """Return mean percent and maximum MiB of each GPU between two times."""
    by_gpu = zip(*(use for moment, use in samples if since < moment <= until))
    return [(round(sum(percent for percent, _ in uses) / len(uses)), max(mib for _, mib in uses)) for uses in by_gpu]


def run_sampled(job: Job) -> tuple[int, list[tuple[float, Use]]]:
    """Run a job; return its exit code, and nvidia-smi's figures every 0.2 s with their times."""
    samples: list[tuple[float, Use]] = []
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(0.2):
            lines = smi("gpu=utilization.gpu,memory.used")
            samples.append((time.time(), [(int(percent), int(mib)) for percent, mib in lines]))

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        return job.run(), samples
    finally:
        stop.set()
        sampler.join()
