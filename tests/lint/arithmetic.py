"""Lint for shell arithmetic, in which bash runs code in a subscript: only numbers may be used.

Traces the value of each name in arithmetic: it was matched as digits earlier in the same function, or it consists of
numbers only. A name that cannot be traced is a finding. This is not a proof: the lint does not check that a failed
match also ends the function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.lint.shell_text import NAME, Scope, closing, expressions, scopes, used, word

# Set by bash, whatever the environment contains.
BUILT_IN = {"SECONDS", "RANDOM", "UID", "EUID", "BASHPID", "PPID", "LINENO", "BASH_VERSINFO", "#", "?", "!", "$"}
# Commands that print a whole number or nothing, with any arguments.
PRINTS_A_NUMBER = re.compile(r"nproc( --all)?|date \+%s(%3N)?|stat -c %[sYg] -- [^;|&]+|id -G")
DIGITS = re.compile(r"(?:\[[0-9-]+\]|[0-9]|[()|+*?]|\{\d+(?:,\d*)?\})+")
GUARD = re.compile(rf"\$\{{?(!?{NAME}|\d)[^\s}}]*\}}? =~ \^(\S+)\$(?= )")
REQUIRED = re.compile(r"\brequire_numbers((?:[ \\\n]+\w+)+)")  # slurm/lib/common/verdict.sh
MATCH = re.compile(r" =~ ((?:\\.|\S)+)")
LOOP = re.compile(rf"\bfor ({NAME}) in (.*?)(?:; do|$)", re.MULTILINE)
ASSIGNED = re.compile(rf"(?:(?<=[\s;&|({{])|^)({NAME})(?:\[[^]\n]*\])?\+?=(?!=)", re.MULTILINE)
READ = re.compile(rf"\b(?:read|mapfile|readarray)\b((?: +(?:-\w+(?: \d+)?|\"[^\"]*\"|\$'[^']*'|{NAME}))*)")
PRINTED = re.compile(rf"printf -v ({NAME}) (\S+)")
PIECE = re.compile(
    rf"\d+|\$\{{\w+//\[!0-9\]/\}}|\$\(\(|\$\{{#[^}}]*\}}|\$\{{!{NAME}\[@\]\}}|\$(?:[#?!$]|\d|{NAME})"
    rf"|\$\{{(?:\d|{NAME})|\$\("
)
# Names that are being traced: path, function, name.
Traced = frozenset[tuple[str, str, str]]


@dataclass(frozen=True)
class Finding:
    path: str
    function: str
    name: str
    text: str


class Shell:
    """All shell files of the project, and the origin of the values in their arithmetic."""

    def __init__(self, files: Mapping[str, str], elsewhere: Mapping[str, list[str]] | None = None) -> None:
        """``elsewhere``: names that other functions match, each with these functions; all of them must."""
        self.scopes = [scope for path, text in files.items() for scope in scopes(path, text)]
        self.elsewhere = elsewhere or {}
        declared = re.findall(r"\b(?:local|declare) -g?A ([^\n;]*)", "\n".join(scope.text for scope in self.scopes))
        self.associative = {name for names in declared for name in re.findall(rf"(?<!\S)({NAME})", names)}

    def findings(self) -> list[Finding]:
        found = {}
        for scope in self.scopes:
            for at, expression in expressions(scope.text, self.associative):
                for name in used(expression, self.associative):
                    if not self._number(name, scope, at, frozenset()):
                        finding = Finding(scope.path, scope.name, name, expression.strip()[:60])
                        found[scope.path, scope.name, name] = finding
        return list(found.values())

    def _with(self, scope: Scope) -> list[Scope]:
        """Return the scopes of the same program, such as slurm."""
        return [other for other in self.scopes if other.path.split("/")[0] == scope.path.split("/")[0]]

    def _number(self, name: str, scope: Scope, at: int, seen: Traced) -> bool:
        """Whether ``name`` can only contain a number at this position."""
        if name.startswith("$("):
            return PRINTS_A_NUMBER.fullmatch(name[2:-1]) is not None
        if name.startswith("BASH_REMATCH"):
            return self._group(int(name[13:-1] or 0), scope.text[:at])
        key = (scope.path, scope.name, name)
        if name in BUILT_IN or key in seen or self._guarded(name, scope.text[:at]):
            return True
        if name in self.elsewhere:
            texts = {f"{other.path} {other.name}": other.text for other in self.scopes}
            return all(self._guarded(name, texts.get(each, "")) for each in self.elsewhere[name])
        return (
            self._called_with(int(name), scope, seen | {key})
            if name.isdigit()
            else self._made(name, scope, seen | {key})
        )

    def _made(self, name: str, scope: Scope, seen: Traced) -> bool:
        """Whether every value that is assigned to ``name`` is a number."""
        those = [scope] if name in scope.local else [other for other in self._with(scope) if name not in other.local]
        values = [(value, other, at) for other in those for value, at in self._values(name, other.text)]
        if name.startswith("SLURM_") or self._may_be_inherited(name, values):
            return False
        return (bool(values) or name in scope.local) and all(self._is_number(*each, seen) for each in values)

    @staticmethod
    def _may_be_inherited(name: str, values: list[tuple[str, Scope, int]]) -> bool:
        """Whether it may keep a value of the environment, since no script sets it first."""
        keeps = re.compile(rf"\$\{{{name}:?[-=]")
        kept = [bool(keeps.search(value)) for value, _, _ in values]
        return any(kept) and all(itself or scope.name for itself, (_, scope, _) in zip(kept, values))

    @staticmethod
    def _guarded(name: str, before: str) -> bool:
        """Whether ``name`` was matched as digits, directly or in a loop over names."""
        loops = {f"!{loop[1]}": loop[2].split() for loop in LOOP.finditer(before)}
        guards = [found for found in GUARD.finditer(before) if DIGITS.fullmatch(found[2])]
        return any(name == found[1] or name in loops.get(found[1], ()) for found in guards) or any(
            name in found[1].replace("\\", " ").split() for found in REQUIRED.finditer(before)
        )

    @staticmethod
    def _group(number: int, before: str) -> bool:
        """Whether a group of the last match contains digits only."""
        *_, last = ["", *MATCH.findall(before)]
        opened = [found.end() for found in re.finditer(r"(?<!\\)\(", last)]
        if not 0 < number <= len(opened):
            return False
        begin = opened[number - 1]
        return bool(DIGITS.fullmatch(last[begin : closing(last, begin, "()")]))

    def _values(self, name: str, text: str) -> Iterator[tuple[str, int]]:
        """Yield the values that are assigned to ``name``; "?" for one from a file or a command."""
        for found in ASSIGNED.finditer(text):
            if found[1] == name:
                yield word(text, found.end()), found.start()
        for found in READ.finditer(text):
            if name in re.sub(r"\"[^\"]*\"", "", found[1]).split():
                given = re.match(r" <<< \"(\$\(.*?\))\"", text[found.end() :])
                yield given[1] if given else "?", found.start()
        for found in LOOP.finditer(text):
            if found[1] == name:
                yield f"({found[2]})", found.start()
        for found in PRINTED.finditer(text):
            if found[1] == name:
                yield "0" if found[2].strip("'\"") in {"%d", "%(%s)T"} else "?", found.start()

    def _is_number(self, value: str, scope: Scope, at: int, seen: Traced) -> bool:
        """Whether a word consists of numbers only; for a list, every word of it."""
        if value.startswith("("):
            one_command = re.fullmatch(r"\(\$\([^)]*\)\)", value)
            words = [value[1:-1]] if one_command else value[1:-1].split()
            return all(self._is_number(each, scope, at, seen) for each in words)
        value, place = value.replace('"', "").replace("''", ""), 0
        while place < len(value):
            piece = PIECE.match(value, place)
            if not piece:
                return False
            begin, place = piece.span()
            if piece[0] in {"$((", "$("} or (piece[0].startswith("${") and not piece[0].endswith("}")):
                place = closing(value, begin + 2, "{}" if piece[0][1] == "{" else "()") + 1
            if not self._is_piece(value[begin:place], scope, at, seen):
                return False
        return True

    def _is_piece(self, text: str, scope: Scope, at: int, seen: Traced) -> bool:
        """Whether an expansion results in a number, also by its default value."""
        if text.startswith("$(") and not text.startswith("$(("):
            return self._number(text, scope, at, seen)
        if text.startswith("${!"):
            return text[3:-4] not in self.associative
        named = re.match(r"\$\{?(BASH_REMATCH\[\d\]|\w+)", text)
        if not named or "[!0-9]" in text:
            return True
        default = re.match(r"\$\{\w+(?:\[@\])?:?[-+=](.*)\}", text, re.DOTALL)
        return self._number(named[1], scope, at, seen) and (not default or self._is_number(default[1], scope, at, seen))

    def _called_with(self, number: int, scope: Scope, seen: Traced) -> bool:
        """Whether every call of the function passes a number at this position."""
        calls = []
        call = re.compile(rf"(?<![\w:]){re.escape(scope.name or '(?!)')}(?=\s|;|\)|$)")
        for other in self._with(scope):
            if "::" not in scope.name and other.path != scope.path:
                continue
            for found in call.finditer(other.text):
                at, given = found.end(), ""
                for _ in range(number):
                    at += len(re.match(r"(?:[ \t]|\\\n)*", other.text[at:])[0])  # type: ignore[index]  # may be empty
                    given = word(other.text, at)
                    at += len(given)
                calls.append(self._is_number(given, other, found.start(), seen))
        return bool(calls) and all(calls)
