"""`python3 -m verl_node.explain.page`: writes the rules as the page docs/troubleshooting.md."""

from __future__ import annotations

import re
import sys
from itertools import groupby

from verl_node.explain import classes, rules, stack_parts
from verl_node.explain.classes import Class
from verl_node.explain.rules import Rule
from verl_node.explain.stack_parts import Place

_SHOWN = 160
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
    "together": "the innermost frame, its code and the exception",
    "frame": "a frame",
    "raised": "the innermost frame",
    "writer": "who said it",
    "code": "the innermost line of code",
    "otherwise": "its words, last",
    "refusal": "a launcher's words",
    "line": "a line of a log that ends badly",
}
_HEAD = ("| told by | such as | class | what it says |", "|---|---|---|---|")
_CLASSES = (
    "A class names the part that failed first, as far as the log tells: what its words say of the cause goes before "
    "where it was raised, and what somebody found out later does not count. The first row that is true is the class."
)
_CLASSES_HEAD = ("| class | means | elsewhere |", "|---|---|---|")


def page() -> str:
    """Return what the classes mean, what is said of every rule, class by class, and of what no rule knows."""
    headings = {one.name: one.heading for one in classes.load()}
    table = sorted(rules.load(), key=lambda rule: list(headings).index(rule.kind))
    parts = ["## The classes", _CLASSES, "\n".join([*_CLASSES_HEAD, *map(_class, classes.load())])]
    for kind, group in groupby(table, key=lambda rule: rule.kind):
        parts += [f"## {headings[kind]} (`{kind}`)", *map(_entry, group)]
    return "\n\n".join([*parts, "## What no rule knows", _PLACES, "\n".join([*_HEAD, *map(_row, stack_parts.load())])])


def _entry(rule: Rule) -> str:
    line = next(line for line in rule.excerpt.splitlines() if rule.pattern.search(line.encode()))
    shown = line.strip() if len(line.strip()) <= _SHOWN else f"{line.strip()[:_SHOWN]} …"
    cause = re.sub(r"\{(\w+)\}", r"*\1*", rule.cause)
    fix = re.sub(r"\{(\w+)\}", r"*\1*", rule.fix)
    links = ", ".join(_link(reference) for reference in rule.references[1:])
    return f"### {rule.id}\n\n```\n{shown}\n```\n\n{cause}{_LEVELS[rule.level]}\n\n**Fix:** {fix} ({links})"


def _class(one: Class) -> str:
    return f"| `{one.name}` | {one.means} | {one.elsewhere[:1].upper()}{one.elsewhere[1:]}. |"


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
