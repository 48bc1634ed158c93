"""Parsing and validation of environment variables."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from verl_node.errors import BadSettings
from verl_node.settings.allocation import number
from verl_node.supervision.hang import END, OFF, REPORT, HangPolicy

LEAST_PATIENCE_S = 8
DASHBOARD = ("0", "1", "node")
NO_DEBUGGER, DISTRIBUTED, LEGACY = DEBUGGERS = ("", "1", "legacy")  # Ray's, by VERLJOB_DEBUG


def host_phases(environ: Mapping[str, str]) -> dict[str, float]:
    """Return the seconds of what node.sh did before this process: host and container share a clock."""
    image_ms, began_ms = number(environ, "VERLJOB_IMAGE_MS", 0), number(environ, "VERLJOB_CONTAINER_BEGAN_MS", 0)
    return {"image": image_ms / 1000, "container": max(0.0, time.time() - began_ms / 1000)} if began_ms else {}


def hang(environ: Mapping[str, str]) -> HangPolicy:
    """What is done about a training that makes no step. Raises BadSettings."""
    action = environ.get("VERLJOB_HANG", "") or (OFF if environ.get("VERLJOB_DEBUG") else REPORT)  # who debugs waits
    if action not in (REPORT, END, OFF):
        raise BadSettings(f"VERLJOB_HANG is {action!r}.", fix=f"Set it to {REPORT}, {END} or {OFF}, or unset it.")
    default = HangPolicy()
    return HangPolicy(
        action=action,
        factor=number(environ, "VERLJOB_HANG_FACTOR", default.factor),
        margin_s=number(environ, "VERLJOB_HANG_MARGIN_S", int(default.margin_s)),
        first_step_s=number(environ, "VERLJOB_FIRST_STEP_TIMEOUT_S", int(default.first_step_s)),
    )


def patience(environ: Mapping[str, str], name: str, default: int) -> int:
    """Return for how many seconds something may be silent before it is taken for lost. Raises BadSettings below 8."""
    seconds = number(environ, name, default)
    if seconds < LEAST_PATIENCE_S:
        raise BadSettings(
            f"{name} is {seconds}: shorter silences are common on a busy node.",
            fix=f"Set it to {LEAST_PATIENCE_S} seconds or more, or unset it for {default}.",
        )
    return seconds


def path(environ: Mapping[str, str], name: str) -> Path | None:
    """An absolute path, None where the variable is not set or empty. Raises BadSettings."""
    value = environ.get(name, "")
    if value and not Path(value).is_absolute():
        raise BadSettings(
            f"{name} is {value!r}, which is not an absolute path.", fix=f"Write {name} out from the root."
        )
    return Path(value) if value else None


def secrets(environ: Mapping[str, str]) -> list[str]:
    """Return the values that came by file: entrypoint.sh adds their names to what the user named."""
    names = environ.get("VERLJOB_SECRET_NAMES", "").split(",")
    return [environ[name] for name in names if environ.get(name)]


def debug(asked: str) -> str:
    """Which of Ray's debuggers is on, empty for none. Raises BadSettings."""
    if asked not in DEBUGGERS:
        raise BadSettings(
            f"VERLJOB_DEBUG is {asked!r}.",
            fix="Write 1 (Ray's distributed debugger) or legacy (ray debug), or unset it.",
        )
    return asked


def doctor(asked: str) -> str:
    """Which visit this is, empty for a job. Raises BadSettings."""
    if asked not in ("", "quick", "deep"):
        raise BadSettings(f"VERLJOB_DOCTOR is {asked!r}.", fix="Use `sbatch slurm/launch.sh doctor`, which sets it.")
    return asked


def dashboard(asked: str) -> str:
    """Where the dashboard listens, empty for the default. Raises BadSettings."""
    if asked not in ("", *DASHBOARD):
        raise BadSettings(
            f"VERLJOB_DASHBOARD is {asked!r}.",
            fix="Write 0 (off), 1 (on the head's loopback) or node (on its address), or unset it.",
        )
    return asked


def token(file: str) -> bytes:
    """The job's token, empty where there is none. Raises BadSettings."""
    if not file:
        return b""
    try:
        content = Path(file).read_bytes().strip()
    except OSError as error:
        raise BadSettings(
            f"The token file {file} cannot be read: {error.strerror}.",
            fix="Let node.sh write it (mode 0600, owned by the job's account), or unset VERLJOB_TOKEN_FILE.",
        ) from error
    if not content:
        raise BadSettings(f"The token file {file} is empty.", fix="Let slurm/launch.sh make the token of the job.")
    return content
