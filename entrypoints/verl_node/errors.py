"""Errors that end a job, each with its exit code.

NodeError
├── BadSettings            64  wrong settings
├── BadTrainingConfig      65  the training configuration is wrong
├── InputUnavailable       66  data, model or a module of the rollout is not available
├── CheckFailed            69  a health check failed
├── RayNotStarted          71  Ray did not start
├── ClusterNotFormed       75  the cluster did not form in time (worth a requeue)
├── ClusterLost            76  the cluster was lost while running (worth a requeue)
│   └── NodeEnded              a node was ended from outside; launch.sh may know that the whole job was
├── TrainingStuck          76  training made no step for too long, and VERLJOB_HANG=end
├── TimeNearlyOver         76  training ended before Slurm's time limit (worth a requeue)
├── PermissionMissing      77  permission
├── EndedFromOutside      143  a signal, or the end of the lease, ended this node
└── Reported                   another process or node failed; its code, stage and cause
"""

from __future__ import annotations


class NodeError(Exception):
    """A failure that ends the job: its ``cause`` (seen and expected) and ``fix``, a sentence each.

    ``host`` and ``stage`` are empty for this node and its current phase. ``failure_class`` is a class of
    docs/troubleshooting.md, if code and stage do not give the right one (`verl_node.reporting.verdict`).
    """

    code = 70
    origin = "self"
    stage = ""

    def __init__(self, cause: str, *, fix: str, host: str = "", stage: str = "", failure_class: str = "") -> None:
        super().__init__(f"{cause} {fix}")
        self.cause = cause
        self.fix = fix
        self.host = host
        self.stage = stage or self.stage
        self.failure_class = failure_class


class BadSettings(NodeError):
    """A setting, or a variable of Slurm, cannot be used."""

    code = 64


class BadTrainingConfig(NodeError):
    """The recipe or an override cannot be trained with."""

    code = 65


class InputUnavailable(NodeError):
    """A data set or model cannot be found or fetched, or a module of the rollout cannot be imported."""

    code = 66


class CheckFailed(NodeError):
    """A check of a node or of the cluster failed."""

    code = 69


class RayNotStarted(NodeError):
    """``ray start`` ended or did not answer in time."""

    code = 71


class ClusterNotFormed(NodeError):
    """Nodes or GPUs were missing at the deadline."""

    code = 75


class ClusterLost(NodeError):
    """A node or the head was lost while the job ran."""

    code = 76


class NodeEnded(ClusterLost):
    """A worker got a signal and the head did not, or not yet; launch.sh knows whether the whole job did."""

    origin = "outside"


class TrainingStuck(NodeError):
    """Training made no step for too long."""

    code = 76
    stage = "hang"


class TimeNearlyOver(NodeError):
    """Slurm ends the job soon; training saved a checkpoint if it could."""

    code = 76
    stage = "lead"


class PermissionMissing(NodeError):
    """The account of the job may not use a file, device or socket."""

    code = 77


class EndedFromOutside(NodeError):
    """A signal or the end of the lease ended this node; its verdict does not explain the end of the job."""

    code = 143
    origin = "signal"


class Reported(NodeError):
    """Another process of this node, or another node, reported a failure; the job ends with its code."""

    def __init__(self, code: int, cause: str, *, fix: str, host: str, stage: str, failure_class: str = "") -> None:
        super().__init__(cause, fix=fix, host=host, stage=stage, failure_class=failure_class)
        self.code = code
