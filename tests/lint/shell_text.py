"""Shell text: its functions, its words, and the places that bash takes for arithmetic."""

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
    """A function, or what stands outside of them, and the names that are its own."""

    path: str
    name: str
    text: str
    local: set[str] = field(default_factory=set)


def scopes(path: str, text: str) -> Iterator[Scope]:
    """Yield the functions of a file, and the rest of it under the name ""."""
    text = without_comments(text)
    functions = [(found[1], found[2] or found[3]) for found in FUNCTION.finditer(text)]
    for name, body in [*functions, ("", FUNCTION.sub("\n", text))]:
        declared = re.findall(r"\b(?:local|declare)\b([^\n;]*)", body)
        own = {each for names in declared for each in re.findall(rf"(?<=\s)({NAME})(?=[ =]|$)", names)}
        yield Scope(path, name, body, own)


def without_comments(text: str) -> str:
    """Leave out what bash does not read, line by line; a # within quotes begins no comment."""
    lines = []
    for line in text.splitlines():
        starts = [0] if line.lstrip().startswith("#") else [found.start() for found in re.finditer(r"(?<=\s)#\s", line)]
        ends = [at for at in starts if line[:at].count('"') % 2 == line[:at].count("'") % 2 == 0]
        lines.append(line[: ends[0]] if ends else line)
    return "\n".join(lines)


def closing(text: str, at: int, pair: str) -> int:
    """Return where the bracket closes that was opened before ``at``."""
    depth = 1
    while at < len(text) and depth:
        depth += {pair[0]: 1, pair[1]: -1}.get(text[at], 0)
        at += 1
    return at - 1


def word(text: str, at: int) -> str:
    """Return the word of the shell that begins at ``at``; a list in brackets is one."""
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
    """Yield every text that bash takes for arithmetic, and where it stands."""
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
    """Yield the names in arithmetic, a ``$(…)`` as it stands."""
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
