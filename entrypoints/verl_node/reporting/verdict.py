"""Verdicts: how a node ended, and result.json of the job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from verl_node.errors import NodeError, Reported
from verl_node.reporting import files
from verl_node.reporting.control_characters import printable
from verl_node.reporting.masking import masked

# The class of a failure, where the error does not know it better; slurm/lib/common/verdict.sh has the same tables.
_CLASS_OF_CODE = {
    64: "config",
    65: "config",
    71: "ray-gcs",
    75: "ray-gcs",
    77: "slurm-container",
    143: "slurm-container",
}
_CLASS_OF_STAGE = {
    "image": "image",
    "data": "data",
    "model": "hf-cache",
    "checks": "slurm-container",
    "container": "slurm-container",
    "launch": "slurm-container",
    "head": "ray-gcs",
    "join": "ray-gcs",
    "cluster": "ray-gcs",
    "lead": "slurm-container",
}

_IN_FILES = {"failure_class": "class"}


def default_class(code: int, stage: str) -> str:
    """The class of a failure by exit code and stage; ``unknown`` where only the training's log can tell."""
    if code == 0:
        return "none"
    if stage == "train" and code != 143:
        return "unknown"
    return _CLASS_OF_CODE.get(code) or _CLASS_OF_STAGE.get(stage, "unknown")


@dataclass(frozen=True)
class Verdict:
    """The code a node ends with and why.

    ``origin`` is ``signal`` when somebody else ended this node first, ``outside`` when somebody ended another one
    (NodeEnded). ``failure_class`` is a class of docs/troubleshooting.md.
    """

    code: int
    origin: str
    stage: str
    host: str
    cause: str
    fix: str
    failure_class: str = ""

    def __post_init__(self) -> None:
        """Fill in the class that code and stage have."""
        object.__setattr__(self, "failure_class", self.failure_class or default_class(self.code, self.stage))

    @classmethod
    def from_error(cls, error: NodeError, *, stage: str, host: str) -> Verdict:
        """Return the verdict that an error stands for; ``stage`` and ``host`` hold unless the error knows better.

        The stage ``train`` is for how training itself ended, since its code may be any: what failed around it while it
        ran has the stage ``cluster``.
        """
        around = "cluster" if stage == "train" and error.origin != "signal" else stage
        where = (error.stage or around, error.host or host)
        return cls(error.code, error.origin, *where, error.cause, error.fix, error.failure_class)

    @classmethod
    def of_training(cls, code: int, *, host: str) -> Verdict:
        """Return the verdict of a training that ended with ``code`` (128 + n: killed by signal n)."""
        if code == 0:
            return cls(0, "self", "train", host, "Training ended with code 0.", "")
        how = f"was killed by signal {code - 128}" if code > 128 else f"ended with code {code}"
        return cls(code, "self", "train", host, f"Training {how}.", "Read the last lines of training above.")

    def error(self) -> Reported:
        """Return the error that this verdict of another node is to us."""
        known = {"host": self.host, "stage": self.stage, "failure_class": self.failure_class}
        return Reported(self.code, self.cause, fix=self.fix, **known)

    def text(self) -> str:
        """Return it as a verdict file: one ``key=value`` a line."""
        return "".join(f"{key}={_one_line(str(value))}\n" for key, value in self.fields().items())

    def fields(self) -> dict[str, object]:
        """Return the fields by their names in files."""
        return {_IN_FILES.get(name, name): value for name, value in asdict(self).items()}

    def sentence(self) -> str:
        """Return the last line of a node's output, in the words of launch.sh."""
        fix = f" — {self.fix}" if self.fix else ""
        return _one_line(f"verdict: {self.code} ({self.stage} on {self.host}): {self.cause}{fix}")


def save_verdict(verdict: Verdict, folders: Iterable[Path]) -> list[str]:
    """Write the file ``verdict`` into each folder, by rename; return what went wrong, so that the rest is tried."""
    problems = []
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_by_rename(folder / "verdict", verdict.text())
        except OSError as error:
            problems.append(f"the verdict could not be written into {folder}: {error.strerror}")
    return problems


def save_result(
    verdict: Verdict, run_dir: Path, *, attempt: int, phases: Mapping[str, float], nodes: Iterable[str]
) -> None:
    """Write ``result.json`` of the run directory, by rename. Raises OSError."""
    result = {key: value for key, value in verdict.fields().items() if key != "origin"}
    seconds = {name: round(value, 3) for name, value in phases.items()}
    result.update(attempt=attempt, phases=seconds, nodes=list(nodes))
    write_by_rename(run_dir / "result.json", json.dumps(result, indent=2) + "\n")


def write_by_rename(path: Path, text: str) -> None:
    """Write a file, without secrets, that readers see whole or not at all. Raises OSError."""
    files.replace(path, masked(text))


def _one_line(text: str) -> str:
    return " ".join(printable(text).split())  # it may hold a line of a log
