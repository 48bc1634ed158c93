"""The part of docs/troubleshooting.md that is generated from the rules."""

from __future__ import annotations

import re
from itertools import groupby

from verl_node.explain import rules, stack_parts
from verl_node.explain.rules import Class, Rule
from verl_node.explain.stack_parts import StackPart

from tests.pages import fill
from tests.support.paths import CHECKOUT

PAGE = CHECKOUT / "docs" / "troubleshooting.md"
_SHOWN = 160
_LEVELS = {
    "cause": "",
    "general": " A more precise line of the log wins.",
    "warning": " Only in a failed job.",
    "symptom": " A consequence: used if nothing else is found.",
}
_PARTS = (
    "Such a failure gets the class of the part that raised it, which the report marks as a guess. "
    "The first matching row is used; frames are tried from the innermost outwards."
)
_BY = {
    "exception": "the exception",
    "importing": "a frame that imports",
    "together": "the innermost frame, its code and the exception",
    "frame": "a frame",
    "raised": "the innermost frame",
    "writer": "the process",
    "code": "the innermost line of code",
    "otherwise": "the exception, last",
    "refusal": "an error of a launcher",
    "line": "a line of a log that ends badly",
}
_HEAD = ("| by | for example | class | meaning |", "|---|---|---|---|")
_CLASSES = (
    "A class names the part that failed first, according to the log: the cause in a message wins over the location of "
    "the error, and later findings do not count. The first row that applies is the class."
)
_CLASSES_HEAD = ("| class | means | elsewhere |", "|---|---|---|")


def updated(page: str) -> str:
    """Return the page with its rules generated again."""
    return fill(page, "rules", rules_text() + "\n")


def rules_text() -> str:
    """Return the classes, the rules of each class, and the parts for failures without a rule."""
    classes = rules.load_classes()
    headings = {each.name: each.heading for each in classes}
    table = sorted(rules.load(), key=lambda rule: list(headings).index(rule.kind))
    parts = ["## The classes", _CLASSES, "\n".join([*_CLASSES_HEAD, *map(_class, classes)])]
    for kind, group in groupby(table, key=lambda rule: rule.kind):
        parts += [f"## {headings[kind]} (`{kind}`)", *map(_entry, group)]
    return "\n\n".join(
        [*parts, "## Failures without a rule", _PARTS, "\n".join([*_HEAD, *map(_row, stack_parts.load())])]
    )


def _entry(rule: Rule) -> str:
    line = next(line for line in rule.excerpt.splitlines() if rule.pattern.search(line.encode()))
    shown = line.strip() if len(line.strip()) <= _SHOWN else f"{line.strip()[:_SHOWN]} …"
    cause = re.sub(r"\{(\w+)\}", r"*\1*", rule.cause)
    fix = re.sub(r"\{(\w+)\}", r"*\1*", rule.fix)
    links = ", ".join(_link(reference) for reference in rule.references[1:])
    return f"### {rule.id}\n\n```\n{shown}\n```\n\n{cause}{_LEVELS[rule.level]}\n\n**Fix:** {fix} ({links})"


def _class(each: Class) -> str:
    return f"| `{each.name}` | {each.means} | {each.elsewhere[:1].upper()}{each.elsewhere[1:]}. |"


def _row(part: StackPart) -> str:
    shown = part.example if len(part.example) <= _SHOWN else f"{part.example[:_SHOWN]} …"
    return f"| {_BY[part.by]} | `{shown}` | `{part.kind}` | {part.what} |"


def _link(reference: str) -> str:
    if reference.startswith("docs/"):
        return f"[{reference[5:-3]}]({reference[5:]})"
    found = re.match(r"https://github\.com/[\w.-]+/([\w.-]+)/(?:issues|pull)/(\d+)", reference)
    return f"[{found[1]}#{found[2]}]({reference})" if found else f"<{reference}>"
