"""Verdicts: how a node or the job ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from verl_node.errors import NodeError, Reported
from verl_node.reporting import files
from verl_node.reporting.control_characters import printable
from verl_node.reporting.masking import masked

# Class of a failure for errors that set none; slurm/lib/common/verdict.sh has the same tables.
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
    "rollout": "image",
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
    """Return the class of a failure by exit code and stage; ``unknown`` if only the training's log has it."""
    if code == 0:
        return "none"
    if stage == "train" and code != 143:
        return "unknown"
    return _CLASS_OF_CODE.get(code) or _CLASS_OF_STAGE.get(stage, "unknown")


@dataclass(frozen=True)
class Verdict:
    """Exit code of a node, its cause and fix.

    ``origin`` is ``signal`` if this node was ended from outside first, ``outside`` if another node was (NodeEnded).
    ``failure_class`` is a class of docs/troubleshooting.md.
    """

    code: int
    origin: str
    stage: str
    host: str
    cause: str
    fix: str
    failure_class: str = ""

    def __post_init__(self) -> None:
        """Set the class by code and stage if the error set none."""
        object.__setattr__(self, "failure_class", self.failure_class or default_class(self.code, self.stage))

    @classmethod
    def from_error(cls, error: NodeError, *, stage: str, host: str) -> Verdict:
        """Return the verdict of an error; ``stage`` and ``host`` are used if the error has none.

        The stage ``train`` is for the end of training itself, whose code may be any: another failure while training ran
        has the stage ``cluster``.
        """
        stage = "cluster" if stage == "train" and error.origin != "signal" else stage
        place = (error.stage or stage, error.host or host)
        return cls(error.code, error.origin, *place, error.cause, error.fix, error.failure_class)

    @classmethod
    def of_training(cls, code: int, *, host: str) -> Verdict:
        """Return the verdict of a training with this exit code (128 + n: killed by signal n)."""
        if code == 0:
            return cls(0, "self", "train", host, "Training ended with code 0.", "")
        how = f"was killed by signal {code - 128}" if code > 128 else f"ended with code {code}"
        return cls(code, "self", "train", host, f"Training {how}.", "Read the last lines of training above.")

    def error(self) -> Reported:
        """Return this verdict of another node as an error."""
        place = {"host": self.host, "stage": self.stage, "failure_class": self.failure_class}
        return Reported(self.code, self.cause, fix=self.fix, **place)

    def text(self) -> str:
        """Return the content of a verdict file: one ``key=value`` a line."""
        return "".join(f"{_IN_FILES.get(name, name)}={_one_line(str(value))}\n" for name, value in vars(self).items())

    def sentence(self) -> str:
        """Return the last line of a node's output, in the format of launch.sh."""
        fix = f" — {self.fix}" if self.fix else ""
        return _one_line(f"verdict: {self.code} ({self.stage} on {self.host}): {self.cause}{fix}")


def save_verdict(verdict: Verdict, folders: Iterable[Path]) -> list[str]:
    """Write the file ``verdict`` into each folder, by rename; return the problems."""
    problems = []
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_by_rename(folder / "verdict", verdict.text())
        except OSError as error:
            problems.append(f"the verdict could not be written into {folder}: {error.strerror}")
    return problems


def save_phases(seconds: Mapping[str, float], run_dir: Path) -> list[str]:
    """Write the file ``phases`` for launch.sh, one ``name=seconds`` a line, by rename; return the problems."""
    try:
        write_by_rename(run_dir / "phases", "".join(f"{name}={value:.3f}\n" for name, value in seconds.items()))
    except OSError as error:
        return [f"the phases could not be written into {run_dir}: {error.strerror}"]
    return []


def write_by_rename(path: Path, text: str) -> None:
    """Replace a file atomically, with secrets masked. Raises OSError."""
    files.replace(path, masked(text))


def _one_line(text: str) -> str:
    return " ".join(printable(text).split())  # a cause may quote a log
