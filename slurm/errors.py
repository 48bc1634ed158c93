"""Errors of the rehearsal cluster and of the commands for jobs.

SlurmError
├── EngineMissing       no docker client or compose command that can be used
├── CommandFailed       a command that had to succeed did not
├── ClusterNotReady     the rehearsal cluster is not there, or was not whole in time
├── CannotLook          a configuration could not be looked at: no such recipe, or no image that can
├── JobUnfinished       a job had not ended at its deadline
├── NoRecord            a job left no record of what is asked about it
└── NothingToExplain    no log of the job that was named
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence


class SlurmError(Exception):
    """The root of this package's errors."""


class EngineMissing(SlurmError, LookupError):
    """No docker client or compose command that can be used."""


class CommandFailed(SlurmError):
    """A command that had to succeed did not; carries its words, its exit code and what it said."""

    def __init__(self, argv: Sequence[str], code: int, output: str, *, where: str = "this machine") -> None:
        said = "\n".join(output.strip().splitlines()[-20:]) or "(nothing)"
        super().__init__(f"`{shlex.join(argv)}` on {where} ended with {code}; it said:\n{said}")
        self.argv = list(argv)
        self.code = code
        self.output = output


class ClusterNotReady(SlurmError, TimeoutError):
    """The rehearsal cluster is not there, or was not whole in time."""


class CannotLook(SlurmError):
    """A configuration could not be looked at: there is no such recipe, or no image that can."""


class JobUnfinished(SlurmError, TimeoutError):
    """A job had not ended at its deadline."""


class NoRecord(SlurmError, FileNotFoundError):
    """A job left no record of what is asked about it."""


class NothingToExplain(SlurmError, LookupError):
    """No log of the job that was named."""
