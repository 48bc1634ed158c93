"""Profiles of sites (slurm/profiles/): their keys, how one is read and recognised, and the variables that it sets.

slurm/lib/common/profile.sh reads the files, for launch.sh and for this module, so that both refuse the same lines.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Union

from slurm.errors import BadProfile

HOME = Path(__file__).parents[2]
PROFILES = HOME / "slurm" / "profiles"
VARIABLE = "VERLJOB_PROFILE"
HERE = "here"
READ_S = 20
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
# Values of placeholders end up in a command line that people copy.
_VALUE = re.compile(r"[A-Za-z0-9&|*_.,:=@/+-]+")
# Sources the reader of a job, and prints the keys, or the verdict's cause and fix.
_READER = """
set -Eeuo pipefail
HOST=here STAGE=launch ENDING=''
for name in log verdict env_table profile; do source "$VERLJOB_HOME/slurm/lib/common/$name.sh"; done
trap '[[ -z ${VERDICT[code]:-} ]] || printf "%s; %s.\\n" "${VERDICT[cause]}" "${VERDICT[fix]}" >&2' EXIT
profile::print "$1"
"""

Value = Union[str, int, bool, date, list[str]]


@dataclass(frozen=True)
class Key:
    """A key of a profile: the type of its value, its meaning, and whether a personal file usually sets it."""

    kind: type
    meaning: str


KEYS = {
    "about": Key(str, "the site in a line"),
    "site": Key(str, "only in a personal file: the name of the site's profile, which this file completes"),
    "recognised.cluster": Key(str, "ClusterName of `scontrol show config`"),
    "recognised.host": Key(list, "patterns for the host's name, with `*`"),
    "recognised.variable": Key(str, "`NAME=value` of the environment"),
    "values.*": Key(str, "value of the placeholder `{name}` in `sbatch.flags`, such as account and partition"),
    "sbatch.flags": Key(list, "flags of every job, with placeholders"),
    "sbatch.forbidden": Key(list, "flags that the site's sbatch refuses, `--flag` or `--flag=value`"),
    "sbatch.required": Key(list, "flags that the site wants in every job; a missing one is reported"),
    "gpus.flag": Key(
        str, "requests GPUs, with `{n}` and `{type}`; empty: Slurm does not count GPUs, a node's are all the job's"
    ),
    "gpus.per_node": Key(int, "GPUs of a node"),
    "gpus.type": Key(str, "their type in Slurm, for `{type}`"),
    "limits.*.flag": Key(str, "flag of the jobs with this limit; of several the smallest that has room applies"),
    "limits.*.nodes": Key(int, "most nodes"),
    "limits.*.time": Key(str, "longest time, in a format of sbatch"),
    "nodes.runtime": Key(str, "VERLJOB_RUNTIME"),
    "nodes.local_disk": Key(str, "VERLJOB_LOCAL, a folder on the node's disk; `{user}` is the account's name"),
    "nodes.image_store": Key(
        str, "VERLJOB_IMAGE_STORE, a shared folder for images ([runtimes](runtimes.md)), with `{user}`"
    ),
    "nodes.binds": Key(list, "VERLJOB_MOUNTS, with `{user}`"),
    "nodes.internet": Key(bool, "false: HF_HUB_OFFLINE=1 and WANDB_MODE=offline"),
    "modules.load": Key(list, "VERLJOB_MODULES, which node.sh loads before it uses the runtime"),
    "hooks.before": Key(str, "VERLJOB_HOOK_BEFORE, a program that node.sh runs before the container, for 60 s at most"),
    "hooks.after": Key(str, "VERLJOB_HOOK_AFTER, the same after the container"),
    "environment.*.value": Key(str, "a variable, of the launch (VERLJOB_…) or of the container"),
    "environment.*.when": Key(
        list, "conditions that must all hold: `nodes > 1`, `gpu = GB200`, `plugin` (the image has one for NCCL)"
    ),
    "container.*": Key(
        str, "a setting of the container's start, instead of the platform's ([platforms](platforms.md))"
    ),
    "bad_nodes.*.reason": Key(str, "a node to exclude, for 90 days from its date"),
}
ORIGIN = {
    "source": Key(str, "page that says so, or a list of pages"),
    "date": Key(date, "day of the page's version, or on which it was read"),
    "user_script": Key(bool, "true: the source is a user's script, not the site's documentation"),
}
# Variables that a key other than environment.* sets, as profile.sh.
VARIABLES = {
    "nodes.runtime": "VERLJOB_RUNTIME",
    "nodes.local_disk": "VERLJOB_LOCAL",
    "nodes.image_store": "VERLJOB_IMAGE_STORE",
    "nodes.binds": "VERLJOB_MOUNTS",
    "modules.load": "VERLJOB_MODULES",
    "hooks.before": "VERLJOB_HOOK_BEFORE",
    "hooks.after": "VERLJOB_HOOK_AFTER",
}
SEPARATORS = {"nodes.binds": ",", "modules.load": " "}
OFFLINE = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline"}


@dataclass(frozen=True)
class Setting:
    """A variable that a profile sets, the conditions under which it does, and the table that says so."""

    name: str
    value: str
    when: Sequence[str]
    table: str

    def holds(self, nodes: int) -> str:
        """Return `yes`, `no`, or what decides it on the node."""
        for condition in self.when:
            if condition.startswith("nodes > ") and nodes <= int(condition.rpartition(" ")[2]):
                return "no"
        undecided = [condition for condition in self.when if not condition.startswith("nodes > ")]
        return f"if {' and '.join(undecided)}" if undecided else "yes"


@dataclass(frozen=True)
class Profile:
    """A profile's tables: {"sbatch": {"flags": […]}, "environment.NCCL_NET": {"value": …}, "": {"about": …}}."""

    name: str
    tables: Mapping[str, Mapping[str, Value]]

    def get(self, table: str, key: str, default: Any = "") -> Any:
        """Return a value, or ``default``."""
        return self.tables.get(table, {}).get(key, default)

    def named(self, kind: str) -> Iterator[tuple[str, Mapping[str, Value]]]:
        """Yield the tables `[kind.name]` in the order of their names."""
        for table in sorted(self.tables):
            if table.startswith(f"{kind}."):
                yield table.partition(".")[2], self.tables[table]

    def sources(self, table: str) -> list[str]:
        """Return the pages that a table rests on."""
        source = self.get(table, "source", [])
        return [source] if isinstance(source, str) else list(source)

    def origin(self, table: str) -> str:
        """Return the sources of a table with their date, and whether they are a user's script."""
        script = "a user's script, " if self.get(table, "user_script", False) else ""
        return f"{script}{', '.join(self.sources(table)) or 'your file'} ({self.get(table, 'date', 'no date')})"

    def settings(self) -> list[Setting]:
        """Return the variables for a job, in the order of their names."""
        found = [
            Setting(VARIABLES[f"{table}.{key}"], _joined(f"{table}.{key}", value), (), table)
            for table, values in self.tables.items()
            for key, value in values.items()
            if f"{table}.{key}" in VARIABLES
        ]
        if self.get("gpus", "flag", None) == "":
            found.append(Setting("VERLJOB_GPUS_PER_NODE", str(self.get("gpus", "per_node")), (), "gpus"))
        if self.get("nodes", "internet", True) is False:
            found += [Setting(name, value, (), "nodes") for name, value in OFFLINE.items()]
        for name, table in self.named("environment"):
            found.append(Setting(name, str(table["value"]), _listed(table.get("when", [])), f"environment.{name}"))
        return sorted(found, key=lambda setting: setting.name)

    def fill(self, text: str) -> str:
        """Replace the placeholders of a flag; one without a value becomes <name>."""
        return _PLACEHOLDER.sub(lambda found: str(self.get("values", found[1]) or f"<{found[1]}>"), text)


def read(name: str) -> Profile:
    """Read a profile by name, or a file by a path that begins with / or ./, with the site that it completes.

    Raises BadProfile for whatever launch.sh refuses: an unknown key, another form of a line, a file of another account.
    """
    lines = _printed(name)
    tables: dict[str, dict[str, Value]] = {}
    for line in lines:
        key, _, text = line.partition("=")
        table, _, last = key.rpartition(".")
        tables.setdefault(table, {})[last] = _checked(name, key, text)
    profile = Profile(name, tables)
    for each, value in tables.get("values", {}).items():
        if each not in ORIGIN and not _VALUE.fullmatch(str(value)):
            raise BadProfile(f"{name}: values.{each} is {value!r}, which is no value of a flag of sbatch.")
    for variable, content in profile.named("environment"):
        if "value" not in content:
            raise BadProfile(f"{name}: environment.{variable} has no value.")
    return profile


def names() -> list[str]:
    """Return the names of the profiles of slurm/profiles/."""
    return sorted(path.stem for path in PROFILES.glob("*.toml"))


def recognise(cluster: str, hosts: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Return the profiles of a machine, by its cluster's name, its own names and its environment."""
    return [name for name in names() if _matches(read(name), cluster, hosts, environ)]


def cluster_name() -> str:
    """Return ClusterName of `scontrol show config`; empty without Slurm."""
    try:
        done = subprocess.run(
            ["scontrol", "show", "config"], capture_output=True, text=True, check=False, timeout=READ_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"^ClusterName\s*=\s*(\S+)", done.stdout, re.MULTILINE)
    return found[1] if found else ""


def choose(name: str, environ: Mapping[str, str]) -> tuple[Profile, str]:
    """Return a profile and why it is that one. `here` means the one of VERLJOB_PROFILE, else of this machine."""
    if name != HERE:
        return read(name), "named"
    if environ.get(VARIABLE):
        return read(environ[VARIABLE]), f"by {VARIABLE}"
    cluster, hosts = cluster_name(), sorted({socket.gethostname(), socket.getfqdn()})
    found = recognise(cluster, hosts, environ)
    if len(found) != 1:
        seen = f"cluster {cluster or 'unknown'}, host {' or '.join(hosts)}"
        several = f"Several profiles match ({', '.join(found)})" if found else "No profile matches"
        raise BadProfile(f"{several} this machine ({seen}). Name one: {', '.join(names())}, or your own file.")
    return read(found[0]), f"recognised: cluster {cluster or 'unknown'}, host {hosts[0]}"


def _printed(name: str) -> list[str]:
    argv = ["bash", "-c", _READER, "profile", name]
    environ = {"PATH": os.environ.get("PATH", os.defpath), "VERLJOB_HOME": str(HOME), "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, timeout=READ_S)
    except (OSError, subprocess.TimeoutExpired) as failed:
        raise BadProfile(f"bash could not read the profile {name}: {failed}.") from failed
    if done.returncode:
        raise BadProfile((done.stderr.strip().splitlines() or [f"bash ended with {done.returncode}"])[-1])
    return done.stdout.splitlines()


def _checked(name: str, key: str, text: str) -> Value:
    """Return the value of a key that profile.sh has accepted. Raises BadProfile for another type."""
    last = key.rpartition(".")[2]
    wanted = KEYS.get(key) or ORIGIN.get(last) or KEYS[re.sub(r"^(\w+)\.[^.]+", r"\1.*", key)]
    kinds = (str, list) if last == "source" else wanted.kind
    try:
        value: Value = date.fromisoformat(text) if _DATE.fullmatch(text) else json.loads(text)
    except ValueError as mistake:
        raise BadProfile(f"{name}: {key} is {text}: {mistake}.") from mistake
    if not isinstance(value, kinds) or (wanted.kind is int and isinstance(value, bool)):
        raise BadProfile(f"{name}: {key} is {text}; write a {wanted.kind.__name__}.")
    return value


def _joined(key: str, value: Value) -> str:
    """Return the value of a key for its variable, as profile.sh."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # the directory service does not answer
        user = f"user{os.getuid()}"
    return SEPARATORS.get(key, "").join(_listed(value)).replace("{user}", user)


def _listed(value: Value) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else [str(value)]


def _matches(profile: Profile, cluster: str, hosts: Sequence[str], environ: Mapping[str, str]) -> bool:
    name, _, value = str(profile.get("recognised", "variable")).partition("=")
    patterns = profile.get("recognised", "host", [])
    return (
        bool(cluster and profile.get("recognised", "cluster") == cluster)
        or any(fnmatchcase(host, pattern) for host in hosts for pattern in patterns)
        or bool(name and environ.get(name) == value)
    )
