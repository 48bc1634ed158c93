"""Runs one node.sh with the runtime bare on a machine with NVIDIA GPUs, and watches driver and kernel."""

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
PROBE = CHECKOUT / "bench" / "gpu_probe.py"
CUDA, HIP, ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
NOSET = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"
END_S = 300.0
AT_ONCE = 4
Use = list[tuple[int, int]]
"""Percent and MiB of each GPU."""
RECIPE = """\
platform: cuda
accelerator: true
module: gpu_probe
data: []
model: null
overrides: {probe.steps: 1, probe.seconds: 1, probe.gib: 1}
"""


def smi(query: str) -> list[list[str]]:
    command = ["nvidia-smi", f"--query-{query}", "--format=csv,noheader,nounits"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [[cell.strip() for cell in line.split(",")] for line in answer.splitlines()]


def uuids() -> list[str]:
    return [uuid for (uuid,) in smi("gpu=uuid")]


def minor(uuid: str) -> int:
    """The number of its /dev/nvidia<minor>, by which Slurm counts."""
    for file in Path("/proc/driver/nvidia/gpus").glob("*/information"):
        text = file.read_text()
        found = re.search(r"Device Minor:\s*(\d+)", text)
        if uuid in text and found:
            return int(found[1])
    raise RuntimeError(f"the driver does not tell the minor number of {uuid}")


def used_mib() -> list[int]:
    return [int(mib) for (mib,) in smi("gpu=memory.used")]


def parents() -> dict[int, int]:
    """The parent of every process that has not ended."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            found[int(stat.parent.name)] = int(parent)
    return found


def tree(root: int) -> set[int]:
    children = parents()
    found, waiting = {root}, [root]
    while waiting:
        above = waiting.pop()
        below = [pid for pid, parent in children.items() if parent == above]
        found.update(below)
        waiting += below
    return found


class Job:
    """One node.sh, or, by hand, one entrypoint; ``gpus`` are the numbers that Slurm would give."""

    _count = 0

    def __init__(
        self,
        gpus: Sequence[int],
        masks: dict[str, str],
        *overrides: str,
        by_hand: bool = False,
        recipe: Path | None = None,
    ) -> None:
        Job._count += 1
        self.number = os.getpid() % 10000 * 100 + Job._count
        self.folder = Path(tempfile.mkdtemp(prefix="gpus-"))
        self.run_dir = self.folder / "run"
        (self.folder / "recipe.yaml").write_text(RECIPE)
        inherited = {name: value for name, value in os.environ.items() if not re.match("SLURM|VERLJOB_", name)}
        first = 31000 + Job._count * 10
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
        if by_hand:
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
            self.environment |= self._of_the_step(gpus)

    def _of_the_step(self, gpus: Sequence[int]) -> dict[str, str]:
        host = os.uname().nodename
        return {
            "SLURM_JOB_ID": str(self.number),
            "SLURM_JOB_NODELIST": host,
            "SLURM_NODEID": "0",
            "SLURM_NNODES": "1",
            "SLURMD_NODENAME": host,
            "SLURM_CPUS_PER_TASK": str(max(8, len(os.sched_getaffinity(0)) // AT_ONCE)),
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
            "VERLJOB_TOKEN": os.urandom(32).hex(),
        }

    def start(self) -> subprocess.Popen[bytes]:
        # The supervisor is started with a PYTHONPATH of its own, so the training is found in its working directory.
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
        """What launch.sh has a step do for a killed node.sh."""
        subprocess.run([*self.command, "sweep"], env=self.environment, check=True, capture_output=True)

    def said(self) -> str:
        """What node.sh said, and its log, which its output goes to as well."""
        return self.output.read_text(errors="replace")

    def until(self, pattern: str) -> None:
        end = time.monotonic() + END_S
        while not re.search(pattern, self.said()):
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError(f"it never said {pattern}:\n{self.said()}")
            time.sleep(0.1)

    def saw(self) -> dict[str, Any]:
        found = re.search(r"^saw (.*)$", self.said(), re.MULTILINE)
        return dict(json.loads(found[1])) if found else {}

    def rows(self) -> list[dict[str, Any]]:
        file = self.run_dir / "metrics.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def note(self) -> str:
        """What the supervisor says of its actor's masks, else its verdict."""
        patterns = (r"an actor ran at .*?\(Python \S+, (.*)\)", r"\tcause=([^\t]*)", r"verdict: (.*)")
        found = next(filter(None, (re.search(pattern, self.said()) for pattern in patterns)), None)
        return found[1] if found else self.said()[-300:]

    def remove(self) -> None:
        shutil.rmtree(self.folder)


def over(told: Sequence[tuple[float, Use]], since: float, until: float) -> Use:
    """Mean percent and most MiB of each GPU in that time."""
    looks = [use for moment, use in told if since < moment <= until]
    return [(round(sum(percent for percent, _ in one) / len(one)), max(mib for _, mib in one)) for one in zip(*looks)]


def sampled(job: Job) -> tuple[int, list[tuple[float, Use]]]:
    """Run it; its code, and what the driver said meanwhile."""
    told: list[tuple[float, Use]] = []
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(0.2):
            lines = smi("gpu=utilization.gpu,memory.used")
            told.append((time.time(), [(int(percent), int(mib)) for percent, mib in lines]))

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        return job.run(), told
    finally:
        stop.set()
        sampler.join()
