"""Parsing and validation of environment variables."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from verl_node.errors import BadSettings
from verl_node.settings.allocation import number
from verl_node.supervision.hang import END, OFF, REPORT, HangPolicy

LEAST_PATIENCE_S = 8
_PLUGIN_VARIABLE = re.compile(r"(NCCL|RCCL|FI|HSA|OFI)_[A-Z0-9_]+")  # as slurm/lib/common/profile.sh
DASHBOARD = ("0", "1", "node")
NO_DEBUGGER, DISTRIBUTED, LEGACY = DEBUGGERS = ("", "1", "legacy")  # Ray's, by VERLJOB_DEBUG


def choice(environ: Mapping[str, str], name: str, values: Sequence[str], fix: str) -> str:
    """Return a variable that is one of these values, or unset or empty. Raises BadSettings."""
    value = environ.get(name, "")
    if value and value not in values:
        raise BadSettings(f"{name} is {value!r}.", fix=fix)
    return value


def host_phases(environ: Mapping[str, str]) -> dict[str, float]:
    """Return the seconds of node.sh's phases before this process: host and container share a clock."""
    image_ms, began_ms = number(environ, "VERLJOB_IMAGE_MS", 0), number(environ, "VERLJOB_CONTAINER_BEGAN_MS", 0)
    return {"image": image_ms / 1000, "container": max(0.0, time.time() - began_ms / 1000)} if began_ms else {}


def hang(environ: Mapping[str, str]) -> HangPolicy:
    """Return how to detect and handle a hang; off by default with a debugger. Raises BadSettings."""
    action = choice(environ, "VERLJOB_HANG", (REPORT, END, OFF), f"Set it to {REPORT}, {END} or {OFF}, or unset it.")
    default = HangPolicy()
    return HangPolicy(
        action=action or (OFF if environ.get("VERLJOB_DEBUG") else REPORT),
        factor=number(environ, "VERLJOB_HANG_FACTOR", default.factor),
        margin_s=number(environ, "VERLJOB_HANG_MARGIN_S", int(default.margin_s)),
        first_step_s=number(environ, "VERLJOB_FIRST_STEP_TIMEOUT_S", int(default.first_step_s)),
    )


def patience(environ: Mapping[str, str], name: str, default: int) -> int:
    """Return the seconds of silence after which a process or node is lost. Raises BadSettings below 8."""
    seconds = number(environ, name, default)
    if seconds < LEAST_PATIENCE_S:
        raise BadSettings(
            f"{name} is {seconds}: shorter silences are common on a busy node.",
            fix=f"Set it to {LEAST_PATIENCE_S} seconds or more, or unset it for {default}.",
        )
    return seconds


def path(environ: Mapping[str, str], name: str) -> Path | None:
    """Return an absolute path, None if the variable is unset or empty. Raises BadSettings."""
    value = environ.get(name, "")
    if value and not Path(value).is_absolute():
        raise BadSettings(
            f"{name} is {value!r}, which is not an absolute path.", fix=f"Set {name} to a path that begins with /."
        )
    return Path(value) if value else None


def secrets(environ: Mapping[str, str]) -> list[str]:
    """Return the values of secret variables: the user's VERLJOB_SECRET_NAMES, to which entrypoint.sh adds others."""
    names = environ.get("VERLJOB_SECRET_NAMES", "").split(",")
    return [environ[name] for name in names if environ.get(name)]


def token(file: str) -> bytes:
    """Return the job's token, empty without a file. Raises BadSettings."""
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


def plugin_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the profile's variables for an image with a network plugin, `NAME=value;…`. Raises BadSettings."""
    pairs = filter(None, environ.get("VERLJOB_PLUGIN_VARIABLES", "").split(";"))
    variables = dict(pair.partition("=")[::2] for pair in pairs)
    for name in variables:
        if not _PLUGIN_VARIABLE.fullmatch(name):
            raise BadSettings(
                f"VERLJOB_PLUGIN_VARIABLES sets {name!r}, which is no variable of NCCL or libfabric.",
                fix="Unset it: node.sh sets it from the profile (docs/profiles.md).",
            )
    return variables


def image_overrides(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the settings of verl that the image needs (docs/flow.md, "In the image")."""
    return tuple(environ.get("VERLJOB_IMAGE_OVERRIDES", "").split())
