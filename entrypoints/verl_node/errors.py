"""Errors that end a job, each with its exit code.

NodeError
├── BadSettings            64  wrong settings
├── BadTrainingConfig      65  the training configuration is wrong
├── InputUnavailable       66  data, model or a module of the rollout not available
├── CheckFailed            69  a health check failed
├── RayNotStarted          71  Ray did not start
├── ClusterNotFormed       75  the cluster did not form in time (worth a requeue)
├── ClusterLost            76  the cluster was lost while running (worth a requeue)
│   └── NodeEnded              of a node that somebody else ended: launch.sh may know that the whole job was
├── TrainingStuck          76  training made no step for too long, and the user wants it ended then
├── TimeNearlyOver         76  Slurm is about to end the job, and training was ended before (worth a requeue)
├── PermissionMissing      77  permission
├── EndedFromOutside      143  somebody else ended this node: a signal, or the end of its lease
└── Reported                   another process or node failed; its code, stage and words
"""

from __future__ import annotations


class NodeError(Exception):
    """A failure that ends the job: what was seen and wanted (``cause``) and what to do (``fix``), a sentence each.

    ``host`` and ``stage`` say where it happened when that is not here and now. ``failure_class`` is a class of
    docs/troubleshooting.md, where code and stage do not give the right one (`verl_node.reporting.verdict`).
    """

    code = 70
    origin = "self"

    def __init__(self, cause: str, *, fix: str, host: str = "", stage: str = "", failure_class: str = "") -> None:
        super().__init__(f"{cause} {fix}")
        self.cause = cause
        self.fix = fix
        self.host = host
        self.stage = stage
        self.failure_class = failure_class


class BadSettings(NodeError):
    """A setting, or a variable of Slurm, cannot be used."""

    code = 64


class BadTrainingConfig(NodeError):
    """The recipe or an override cannot be trained with."""

    code = 65


class InputUnavailable(NodeError):
    """A data set or a model is neither here nor to be fetched, or a module of the rollout cannot be imported."""

    code = 66


class CheckFailed(NodeError):
    """A check of a node or of the cluster found it unfit."""

    code = 69


class RayNotStarted(NodeError):
    """``ray start`` ended or did not answer in time."""

    code = 71


class ClusterNotFormed(NodeError):
    """Not every expected node and GPU was there at the deadline."""

    code = 75


class ClusterLost(NodeError):
    """A node or the head went away while the job ran."""

    code = 76


class NodeEnded(ClusterLost):
    """A worker was told to end and this head was not, or not yet: if the job was, launch.sh knows."""

    origin = "outside"


class TrainingStuck(NodeError):
    """Training made no step for longer than it may."""

    code = 76

    def __init__(self, cause: str, *, fix: str) -> None:
        super().__init__(cause, fix=fix, stage="hang")


class TimeNearlyOver(NodeError):
    """Slurm said that it will end the job soon; what could be saved was saved."""

    code = 76

    def __init__(self, cause: str, *, fix: str) -> None:
        super().__init__(cause, fix=fix, stage="lead")


class PermissionMissing(NodeError):
    """A file, device or socket may not be used by the account of the job."""

    code = 77


class EndedFromOutside(NodeError):
    """Somebody else ended this node first, so its verdict says nothing about the job."""

    code = 143
    origin = "signal"


class Reported(NodeError):
    """Another process of this node, or another node, failed and said how; the job ends with its code."""

    def __init__(self, code: int, cause: str, *, fix: str, host: str, stage: str, failure_class: str = "") -> None:
        super().__init__(cause, fix=fix, host=host, stage=stage, failure_class=failure_class)
        self.code = code
