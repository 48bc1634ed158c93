"""`python3 -m verl_node.explain.page`: the rules as a page, for docs/troubleshooting.md."""

from __future__ import annotations

import re
import sys
from itertools import groupby

from verl_node.explain import places, rules
from verl_node.explain.places import Place
from verl_node.explain.rules import Rule

_SHOWN = 160
_HEADINGS = {
    "ray-gcs": "Ray: the cluster",
    "nccl": "NCCL, RCCL, Gloo: the ranks",
    "vllm": "vLLM and device masks: the rollout",
    "fsdp": "FSDP",
    "slurm-container": "Slurm and the container",
    "debug-logs": "Debugging",
    "hf-cache": "Hugging Face: cache and hub",
    "config": "The configuration",
    "image": "The image",
    "data": "Data, checkpoints, disks",
    "memory": "Memory",
}
_LEVELS = {
    "cause": "",
    "general": " Where a log also says it more precisely, that is taken.",
    "warning": " Only in a job that failed.",
    "symptom": " A consequence: taken where nothing else is found.",
}


_PLACES = (
    "It gets the class of the part in which it failed, and the report says so: a guess by structure. "
    "The first row that fits is taken; frames are looked at from the innermost outwards."
)
_BY = {
    "exception": "its words",
    "importing": "a frame that imports",
    "frame": "a frame",
    "raised": "the innermost frame",
    "writer": "who said it",
    "otherwise": "its words, last",
    "refusal": "a launcher's words",
    "line": "a line of a log that ends badly",
}
_HEAD = ("| told by | such as | class | what it says |", "|---|---|---|---|")


def page() -> str:
    """Return what is said of every rule, by class in the order of the headings, and of what no rule knows."""
    table = sorted(rules.load(), key=lambda rule: list(_HEADINGS).index(rule.kind))
    parts = []
    for kind, group in groupby(table, key=lambda rule: rule.kind):
        parts += [f"## {_HEADINGS[kind]} (`{kind}`)", *map(_entry, group)]
    return "\n\n".join([*parts, "## What no rule knows", _PLACES, "\n".join([*_HEAD, *map(_row, places.load())])])


def _entry(rule: Rule) -> str:
    line = next(line for line in rule.excerpt.splitlines() if rule.pattern.search(line.encode()))
    shown = line.strip() if len(line.strip()) <= _SHOWN else f"{line.strip()[:_SHOWN]} …"
    cause = re.sub(r"\{(\w+)\}", r"*\1*", rule.cause)
    fix = re.sub(r"\{(\w+)\}", r"*\1*", rule.fix)
    links = ", ".join(_link(reference) for reference in rule.references[1:])
    return f"### {rule.id}\n\n```\n{shown}\n```\n\n{cause}{_LEVELS[rule.level]}\n\n**Fix:** {fix} ({links})"


def _row(place: Place) -> str:
    shown = place.example if len(place.example) <= _SHOWN else f"{place.example[:_SHOWN]} …"
    return f"| {_BY[place.by]} | `{shown}` | `{place.kind}` | {place.what} |"


def _link(reference: str) -> str:
    if reference.startswith("docs/"):
        return f"[{reference[5:-3]}]({reference[5:]})"
    found = re.match(r"https://github\.com/[\w.-]+/([\w.-]+)/(?:issues|pull)/(\d+)", reference)
    return f"[{found[1]}#{found[2]}]({reference})" if found else f"<{reference}>"


if __name__ == "__main__":
    sys.stdout.write(page() + "\n")
