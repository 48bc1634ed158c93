"""Memory estimates of the check against the memory used, of runs of bench/gpu/training.py.

    python3 bench/gpu/training_memory.py FOLDER…

Estimates are the lines that the job printed before it trained. verl's and vLLM's own figures are in GiB, also where
their lines have "GB"; the table has GB of 10**9 bytes, as the estimates do. A part without its lines is left out, as
those of an engine that logs warnings only.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.gpu.training_result import Trained, read
from bench.gpu.training_table import table

GIB, GB = 2**30, 10**9
HEAD = ("run", "part", "estimated", "used", "estimated / used")

_ROLE = re.compile(
    r"memory of (\S+) on each GPU: weights ([\d.]+) GB(?:, gradients ([\d.]+) GB, optimiser ([\d.]+) GB)?; (\w+)"
)
_ROLLOUT = re.compile(
    r"memory of the rollout on each GPU: weights ([\d.]+) GB, and ([\d.]+) kB per token of its cache: "
    r"room for (\d+) sequences of (\d+) tokens"
)
_AFTER_FSDP = re.compile(r"After FSDP, memory allocated \(GB\): ([\d.]+), .*/([\d.]+)$", re.MULTILINE)
_ENGINE_WEIGHTS = re.compile(r"Model loading took ([\d.]+) GiB")
_CACHE = re.compile(r"Available KV cache memory: ([\d.]+) GiB")
_CACHE_TOKENS = re.compile(r"GPU KV cache size: ([\d,]+) tokens")
_ASLEEP = re.compile(r"Sleep mode freed [\d.]+ GiB memory, ([\d.]+) GiB memory is still in use")
_SHARE = "actor_rollout_ref.rollout.gpu_memory_utilization"
_HIGHEST = "actor/perf/max_memory_allocated_gb"


@dataclass(frozen=True)
class Part:
    """One part of the estimate, and what was used: both in the same unit."""

    name: str
    estimated: float
    used: float
    unit: str = "GB"

    @property
    def ratio(self) -> float:
        return self.estimated / self.used

    def cells(self) -> list[str]:
        digits = {"GB": 1, "kB": 2}.get(self.unit, 0)
        figures = [f"{value:,.{digits}f} {self.unit}" for value in (self.estimated, self.used)]
        return [self.name, *figures, f"{self.ratio:.2f}"]


@dataclass(frozen=True)
class Role:
    """The printed estimate of one model, in GB."""

    weights: float
    gradients: float
    optimiser: float
    is_offloaded: bool

    @property
    def busy(self) -> float:
        return self.weights + self.gradients + self.optimiser

    @property
    def idle(self) -> float:
        """On the GPU while another model is used; the line does not say whether Adam's moments alone are offloaded."""
        return 0.0 if self.is_offloaded else self.weights + self.optimiser


def parts(job: Trained) -> list[Part]:
    """Return the parts of the estimate that the output, verl's metrics or nvidia-smi tell apart."""
    text = "\n".join(line for _, line in job.lines)
    roles = [
        Role(float(weights), float(gradients or 0), float(optimiser or 0), state == "offloaded")
        for _, weights, gradients, optimiser, state in _ROLE.findall(text)
    ]
    return [*_trainer(job, text, roles), *_engine(text), *_whole(job, text, roles)]


def _trainer(job: Trained, text: str, roles: list[Role]) -> Iterator[Part]:
    # With one GPU FSDP offloads the reference's weights only in the first step, with several from the start.
    late = [role for role in roles if role.is_offloaded and job.launch["gpus"] == 1]
    loaded = _AFTER_FSDP.findall(text)
    if loaded:
        weights = sum(role.weights for role in roles if not role.is_offloaded or role in late)
        yield Part("weights on the GPU", weights, _gb(loaded[-1][0]))
    asleep = [(time, float(found[1])) for time, line in job.lines if (found := _ASLEEP.search(line))]
    before = [used for time, used in asleep if job.first and time < job.first]
    after = [used for time, used in asleep if job.first and time > job.first]
    if before and after:
        # The first step makes Adam's moments.
        grown = _gb(after[0] - before[-1]) + sum(role.weights for role in late)
        yield Part("Adam's moments, all models", sum(role.optimiser for role in roles), grown)
    highest = [row["metrics"][_HIGHEST] for row in job.rows if _HIGHEST in row["metrics"]]
    if highest and roles:
        yield Part("training, highest allocation", _largest(roles), _gb(max(highest)))


def _largest(roles: list[Role]) -> float:
    """Return the largest sum of a model in use and the others beside it."""
    return max(role.busy + sum(other.idle for other in roles if other is not role) for role in roles)


def _engine(text: str) -> Iterator[Part]:
    estimate = _ROLLOUT.search(text)
    weights, cache, tokens = (pattern.search(text) for pattern in (_ENGINE_WEIGHTS, _CACHE, _CACHE_TOKENS))
    if not (estimate and weights and cache and tokens):
        return
    count = int(tokens[1].replace(",", ""))
    yield Part("rollout, weights", float(estimate[1]), _gb(weights[1]))
    yield Part("rollout, cache of a token", float(estimate[2]), _gb(cache[1]) * GB / 1000 / count, "kB")
    yield Part("rollout, room of the cache", int(estimate[3]) * int(estimate[4]), count, "tokens")


def _whole(job: Trained, text: str, roles: list[Role]) -> Iterator[Part]:
    total = _AFTER_FSDP.search(text)
    used = [gpu[1] for sample in job.samples for gpu in sample["gpus"]]
    if total and used and _SHARE in job.launch["overrides"]:
        share = job.launch["overrides"][_SHARE] * _gb(total[2])
        idle = sum(role.idle for role in roles)
        yield Part("GPU: rollout's share, idle models", share + idle, _gb(max(used) / 1024))


def _gb(gib: str | float) -> float:
    return float(gib) * GIB / GB


def report(folders: list[Path]) -> str:
    """Return the table of some runs."""
    jobs = [read(folder, 0) for folder in folders]
    return table(HEAD, [[job.name, *part.cells()] for job in jobs for part in parts(job)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    print(report(sorted(path.parent for top in given.folders for path in top.rglob("launch.json"))))


if __name__ == "__main__":
    main()
