"""Errors of the rehearsal cluster and of the commands for jobs.

SlurmError
├── EngineMissing       no usable docker client or compose command
├── CommandFailed       a command exited with an error
├── ClusterNotReady     the rehearsal cluster does not run, or not completely at the deadline
├── BadProfile          a profile of a site cannot be read, or none fits this machine
├── CannotCheck         a configuration could not be checked: unknown recipe, or an image that cannot
├── CannotStage         inputs of a job could not be made or downloaded
├── JobUnfinished       a job had not ended at its deadline
├── NoRecord            a job left no file with the requested information
└── NothingToExplain    no log of the given job
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence


class SlurmError(Exception):
    """Base class of this package's errors."""


class EngineMissing(SlurmError, LookupError):
    """No usable docker client or compose command."""


class CommandFailed(SlurmError):
    """A command exited with an error; has its arguments, exit code and output."""

    def __init__(self, argv: Sequence[str], code: int, output: str, *, where: str = "this machine") -> None:
        tail = "\n".join(output.strip().splitlines()[-20:]) or "(nothing)"
        super().__init__(f"`{shlex.join(argv)}` on {where} ended with {code}; its output:\n{tail}")
        self.argv = list(argv)
        self.code = code
        self.output = output


class ClusterNotReady(SlurmError, TimeoutError):
    """The rehearsal cluster does not run, or not completely at the deadline."""


class BadProfile(SlurmError, ValueError):
    """A profile of a site cannot be read, or none, or more than one, fits this machine."""


class CannotCheck(SlurmError):
    """A configuration could not be checked: the recipe is unknown, or the image cannot check it."""


class CannotStage(SlurmError):
    """The inputs of a job could not be made or downloaded on this machine."""


class JobUnfinished(SlurmError, TimeoutError):
    """A job had not ended at its deadline."""


class NoRecord(SlurmError, FileNotFoundError):
    """A job left no file with the requested information."""


class NothingToExplain(SlurmError, LookupError):
    """No log of the given job."""
