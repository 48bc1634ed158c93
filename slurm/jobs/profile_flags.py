"""The flags of sbatch for a job at a site: those of its profile, replaced and completed by the user's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from slurm.errors import BadProfile
from slurm.jobs.profile import Profile

BAD_NODE_DAYS = 90
SHORT = {"A": "account", "p": "partition", "q": "qos", "C": "constraint", "N": "nodes", "t": "time", "G": "gpus",
         "c": "cpus-per-task", "n": "ntasks", "x": "exclude", "w": "nodelist", "L": "licenses"}  # fmt: skip
GPU_FLAGS = ("gres", "gpus", "gpus-per-node", "gpus-per-task")
# Long flags that take a value, of those that a profile can be about: `--flag value` is `--flag=value`.
VALUED = {*SHORT.values(), *GPU_FLAGS, "mem", "mem-per-cpu", "mem-per-gpu", "network", "export"}
# sbatch's input variables for these flags (man sbatch, INPUT ENVIRONMENT VARIABLES).
INPUTS = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos",
    "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_TIMELIMIT": "time",
    "SBATCH_GRES": "gres",
    "SBATCH_GPUS": "gpus",
    "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_MEM_PER_CPU": "mem-per-cpu",
    "SBATCH_MEM_PER_GPU": "mem-per-gpu",
    "SBATCH_NETWORK": "network",
    "SBATCH_EXPORT": "export",
    "SBATCH_EXCLUSIVE": "exclusive",
}


@dataclass(frozen=True)
class Request:
    """A job as its user wants it: the words before slurm/launch.sh, and the exported variables."""

    words: Sequence[str]
    environ: Mapping[str, str]

    def given(self) -> dict[str, str]:
        """Return the flags by long names, the command line's before the environment's; empty if without a value."""
        found = {INPUTS[name]: value for name, value in self.environ.items() if name in INPUTS}
        return {**found, **dict(_parsed(self.words))}

    @property
    def nodes(self) -> int:
        """The smallest number of nodes that it asks for, two by default as in the header of launch.sh."""
        text = self.given().get("nodes", "2").partition("-")[0]
        if not text.isdecimal() or len(text) > 6:
            raise BadProfile(f"--nodes={text} is not a number of nodes.")
        return int(text)


@dataclass(frozen=True)
class Flag:
    """A flag for sbatch and why it is passed."""

    text: str
    why: str

    @property
    def name(self) -> str:
        """The flag without its value."""
        return self.text.partition("=")[0]


def flags(profile: Profile, request: Request, today: date) -> list[Flag]:
    """Return all flags of the job.

    A flag whose placeholder has no value is left out unless the site requires it: elsewhere the site has a default.
    """
    given, required = request.given(), profile.get("sbatch", "required", [])
    ours = [flag for flag in _of_profile(profile, today) if not _is_replaced(flag, given)]
    ours = [flag for flag in ours if "<" not in flag.text or flag.name in required or flag.name[2:] in GPU_FLAGS]
    names = {flag.name for flag in ours} | {f"--{name}" for name in given}
    why = f"sbatch.required: {profile.origin('sbatch')}"
    ours += [Flag(f"{name}=<{name[2:]}>", why) for name in required if name not in names]
    own = [Flag(f"--{name}={value}" if value else f"--{name}", "yours") for name, value in given.items()]
    return [*ours, *own, *([] if "nodes" in given else [Flag("--nodes=2", "the default of launch.sh")])]


def gpu_flag(profile: Profile) -> str:
    """Return the flag that requests all GPUs of a node; empty where there is none."""
    kind = profile.get("gpus", "type") or "<type>"
    text = str(profile.get("gpus", "flag"))
    return text.replace("{n}", str(profile.get("gpus", "per_node"))).replace("{type}", str(kind))


def _of_profile(profile: Profile, today: date) -> Iterator[Flag]:
    for text in profile.get("sbatch", "flags", []):
        yield Flag(profile.fill(text), f"sbatch.flags: {profile.origin('sbatch')}")
    if text := gpu_flag(profile):
        yield Flag(text, f"gpus.flag: {profile.origin('gpus')}")
    noted = [(name, content.get("date")) for name, content in profile.named("bad_nodes")]
    limit = timedelta(days=BAD_NODE_DAYS)
    if bad := [name for name, when in noted if isinstance(when, date) and today - when <= limit]:
        yield Flag(f"--exclude={','.join(bad)}", f"bad_nodes of the last {BAD_NODE_DAYS} days")


def _is_replaced(flag: Flag, given: Mapping[str, str]) -> bool:
    """Whether the user gives this flag, or asks for GPUs by another one."""
    name = flag.name[2:]
    return name in given or (name in GPU_FLAGS and any(each in given for each in GPU_FLAGS))


def _parsed(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the flags before the script by their long names."""
    words = list(words)
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word.startswith("--"):
            name, given, value = word[2:].partition("=")
        else:
            name, value = SHORT.get(word[1:2], word[1:2]), word[2:]
            given = value
        if not given and name in VALUED and words:
            value = words.pop(0)
        yield name, value
