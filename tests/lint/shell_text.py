"""Parser for shell text: functions, words, arithmetic expressions, and the headers of libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

NAME = r"[A-Za-z_]\w*"
FUNCTION = re.compile(r"^([\w:]+)\(\) \{(?:([^\n]*)\}$|(.*?)^\})", re.MULTILINE | re.DOTALL)
COMPARED = re.compile(r"(\S+) -(?:eq|ne|lt|le|gt|ge) (\S+)")
SUBSCRIPT = re.compile(rf"(?<![\w\[:/^(])({NAME})\[(?=[^]\n]*\]\+?=)|\$\{{[#!]?({NAME})\[|unset \W?({NAME})\[")


@dataclass
class Scope:
    """A function, or the text outside of all functions, and its local names."""

    path: str
    name: str
    text: str
    local: set[str] = field(default_factory=set)


def scopes(path: str, text: str) -> Iterator[Scope]:
    """Yield the functions of a file, and the other text under the name ""."""
    text = without_comments(text)
    functions = [(found[1], found[2] or found[3]) for found in FUNCTION.finditer(text)]
    for name, body in [*functions, ("", FUNCTION.sub("\n", text))]:
        declared = re.findall(r"\b(?:local|declare)\b([^\n;]*)", body)
        own = {each for names in declared for each in re.findall(rf"(?<=\s)({NAME})(?=[ =]|$)", names)}
        yield Scope(path, name, body, own)


def without_comments(text: str) -> str:
    """Remove comments line by line; a # in quotes does not start one."""
    lines = []
    for line in text.splitlines():
        starts = [0] if line.lstrip().startswith("#") else [found.start() for found in re.finditer(r"(?<=\s)#\s", line)]
        ends = [at for at in starts if line[:at].count('"') % 2 == line[:at].count("'") % 2 == 0]
        lines.append(line[: ends[0]] if ends else line)
    return "\n".join(lines)


def closing(text: str, at: int, pair: str) -> int:
    """Return the position of the bracket that closes the one before ``at``."""
    depth = 1
    while at < len(text) and depth:
        depth += {pair[0]: 1, pair[1]: -1}.get(text[at], 0)
        at += 1
    return at - 1


def word(text: str, at: int) -> str:
    """Return the shell word at ``at``; a list in brackets counts as one."""
    begin, quoted = at, False
    if text[at : at + 1] == "(":
        return text[at : closing(text, at + 1, "()") + 1]
    while at < len(text) and (quoted or text[at] not in " \t\n;&|)<>"):
        if text[at] == '"':
            quoted = not quoted
        elif text[at : at + 2] in {"$(", "${"}:
            at = closing(text, at + 2, "()" if text[at + 1] == "(" else "{}")
        elif text[at] == "'" and not quoted:
            at = max(at, text.find("'", at + 1))
        at += 1
    return text[begin:at]


def expressions(text: str, associative: set[str]) -> Iterator[tuple[int, str]]:
    """Yield the position and text of every arithmetic expression."""
    for found in re.finditer(r"\(\(", text):
        yield found.start(), text[found.end() : closing(text, found.end(), "()")]
    for found in re.finditer(r"\[\[ .*? \]\]", text):
        for operands in COMPARED.finditer(found[0]):
            yield from ((found.start(), operand.strip('"')) for operand in operands.groups())
    for found in re.finditer(rf"(?<!')\$\{{(?:{NAME}(?:\[[@*]\])?|[@*]):(?![-+=?])", text):
        yield found.start(), text[found.end() : closing(text, found.end(), "{}")]
    for found in SUBSCRIPT.finditer(text):
        inside = text[found.end() : closing(text, found.end(), "[]")]
        if inside not in {"@", "*"} and not associative & set(found.groups()):
            yield found.start(), inside


def used(expression: str, associative: set[str]) -> Iterator[str]:
    """Yield the names in an arithmetic expression, and each ``$(…)`` in it."""
    expression = re.sub(r"\$\{#[^}]*\}", " ", expression).replace("$((", " ((")
    while (at := expression.find("$(")) >= 0:
        end = closing(expression, at + 2, "()")
        yield expression[at : end + 1]
        expression = expression[:at] + " " + expression[end + 1 :]
    for found in re.findall(rf"{NAME}(?=\[)", expression):
        if found in associative:
            expression = re.sub(rf"{found}\[\"?\$?{NAME}\"?\]", found, expression)
    expression = re.sub(r"\$\{(\w+)(?:[#%/,^:](?![-+=?]\w)[^}]*)?", r" $\1 ", expression)
    for name in re.findall(rf"\$[#?!$]|\$?\d+\b|BASH_REMATCH\[\d\]|\$?{NAME}", expression):
        if not re.fullmatch(r"\d+", name):
            yield name.removeprefix("$")


QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"")
ASSIGNED = re.compile(rf"(?<![\w$./:=-])({NAME})(?:\[[^]\n]*\])?\+?=(?!=)")
READ = re.compile(rf"\b(?:printf -v|read(?: -\w+(?: [\w\"'.]+(?= -))?)*|mapfile -t|exec \{{)\s*((?:{NAME}[ \t]*)+)")
EXPORTED = re.compile(r"\b(?:export|declare -g\w*)\s+([^\n;&|]*)")
CONSTANTS = re.compile(r"\breadonly\b([^\n;&|]*)")
DESCRIPTOR = re.compile(r"\bexec (\d)[<>]+(?!&-)")
SETS = re.compile(r"^# Sets: (.*(?:\n#   .*)*)$", re.MULTILINE)
HOLDS = re.compile(r"^# Descriptors: (.*)$", re.MULTILINE)


def globals_set(path: str, text: str) -> set[str]:
    """Return the variables in capitals that a library assigns, without its constants.

    An assignment before a command's name does not count, as it is local to the command.
    """
    found: set[str] = set()
    for scope in scopes(path, text):
        code = QUOTED.sub("''", scope.text)
        names = {name for one in READ.finditer(code) for name in one[1].split()}
        names |= {one[1] for one in ASSIGNED.finditer(code) if not _before_a_command(code, one.end())}
        for one in EXPORTED.finditer(code):
            names |= set(re.findall(rf"(?:^|\s)({NAME})(?=[ =]|$)", one[1]))
        found |= {name for name in names if re.fullmatch("[A-Z][A-Z0-9_]+", name)} - scope.local
    constants = " ".join(CONSTANTS.findall(QUOTED.sub("''", without_comments(text))))
    return found - set(re.findall(rf"(?<=\s)({NAME})(?=[ =]|$)", constants)) - {"IFS", "LC_ALL"}


def _before_a_command(code: str, at: int) -> bool:
    """Whether an assignment whose value begins at ``at`` is local to a command after it."""
    at += len(word(code, at))
    while another := re.match(rf"[ \t]+{NAME}(?:\[[^]\n]*\])?\+?=", code[at:]):
        at += another.end()
        at += len(word(code, at))
    return bool(re.match(r"[ \t]+(?:\\\n\s*)?[^\s&|;)}#\\]", code[at:]))


def descriptors_held(text: str) -> set[str]:
    """Return the numbers of the descriptors that a library opens in its shell."""
    return set(DESCRIPTOR.findall(without_comments(text)))


def header(text: str) -> tuple[set[str], set[str]]:
    """Return the variables and descriptors in the header of a library."""
    sets, holds = SETS.search(text), HOLDS.search(text)
    return set(re.findall(NAME, sets[1])) if sets else set(), set(re.findall(r"\b\d\b", holds[1])) if holds else set()
