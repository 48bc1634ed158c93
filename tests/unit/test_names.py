"""Names of modules consist of the words in tests/data/module_words.txt; other names and texts avoid a few patterns.

A new module may add a word that readers of the documentation of Slurm, Docker, Ray or verl know.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import PurePath

import pytest

from tests.support.paths import CHECKOUT, DATA

WORDS = set((DATA / "module_words.txt").read_text().split())
PRODUCT = ["bench", "bootstrap", "dockerfiles", "entrypoints", "images", "slurm"]
TOP = ["run", "tasks.py"]
VAGUE_NAMES = {"of", "said", "told"}
# A docstring or comment starts with a verb or a noun, not with a pronoun for it.
VAGUE_START = re.compile(r"(?:What|Who|Whoever|Nobody|Somebody)\b")
SHELL_COMMENT = re.compile(r"\s*\{?#+ +(.*)")
SHELL_NAME = re.compile(r"^\s*(?:local |readonly |declare )?(?:-\w+ )?(?:\w+::)?(\w+)(?:\(\)|=)", re.MULTILINE)


def files(*paths: str) -> list[str]:
    argv = ["git", "-C", str(CHECKOUT), "ls-files", "--cached", "--others", "--exclude-standard", *paths]
    listed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    return [file for file in listed if (CHECKOUT / file).exists()]


def modules() -> list[str]:
    """List the Python and shell files of the product and of bench/."""
    return [file for file in files(*PRODUCT) if file.endswith((".py", ".sh"))]


def sources() -> list[str]:
    """List the files whose names and comments are checked."""
    return [file for file in files(*PRODUCT, *TOP) if file.endswith((".py", ".sh", ".j2")) or file in TOP]


def unknown_words(file: str) -> list[str]:
    return [word for word in PurePath(file).stem.split("_") if word and word not in WORDS]


def vague(file: str, text: str) -> list[str]:
    """List vague names and starts of docstrings and comments, without duplicates."""
    names, texts = python_names(text) if file.endswith(".py") else shell_names(text)
    starts = [line.strip().splitlines()[0] for line in texts if VAGUE_START.match(line.strip())]
    return sorted({*(name for name in names if name.strip("_") in VAGUE_NAMES), *starts})


def python_names(text: str) -> tuple[list[str], list[str]]:
    """Return the names that a module defines, and its docstrings and comments."""
    names, texts = [], []
    for node in ast.walk(ast.parse(text)):
        names += defined(node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            texts.append(node.value.value)
    texts += comment_blocks(text)
    return names, texts


def defined(node: ast.AST) -> list[str]:
    """Return the name that a node defines: of a function, class, argument, variable or attribute."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    return [node.attr] if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) else []


def comment_blocks(text: str) -> Iterator[str]:
    """Yield each block of comment lines, and each comment behind code."""
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1 or token.line[: token.start[1]].strip():
                yield token.string.lstrip("# ")
            last = token.start[0]


def shell_names(text: str) -> tuple[list[str], list[str]]:
    """Return the functions and variables that a script defines, and the first line of each comment."""
    comments = [SHELL_COMMENT.match(line) for line in text.splitlines()]
    starts = [comment[1] for before, comment in zip([None, *comments], comments) if comment and not before]
    return SHELL_NAME.findall(text), starts


def test_module_names_consist_of_listed_words() -> None:
    assert len(modules()) > 200
    assert {file: words for file in modules() if (words := unknown_words(file))} == {}


def test_every_listed_word_is_used_in_a_module_name() -> None:
    used = {word for file in modules() for word in PurePath(file).stem.split("_")}

    assert sorted(WORDS - used) == []


@pytest.mark.parametrize("file", ["images/host/alone.py", "slurm/lib/common/say.sh", "entrypoints/verl_node/strain.py"])
def test_unknown_word_in_module_name_fails(file: str) -> None:
    assert unknown_words(file)


def test_names_docstrings_and_comments_are_not_vague() -> None:
    assert len(sources()) > 200
    found = {file: vague(file, (CHECKOUT / file).read_text(encoding="utf-8")) for file in sources()}

    assert {file: names for file, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.py", "def of(path): ..."),
        ("a.py", "def read(told): ..."),
        ("a.py", "if (said := read()): ..."),
        ("a.py", "self._told = {}"),
        ("a.py", '"""What a job left."""'),
        ("a.py", 'def read():\n    """Whoever reads it."""'),
        ("a.py", "LIMIT = 1\n# Nobody waits longer."),
        ("a.py", "LIMIT = 1  # Who is waiting"),
        ("a.sh", "    local -r told=$1"),
        ("a.sh", "image::of() { :; }"),
        ("a.sh", "# What is left on the node."),
        ("a.j2", "{# Somebody builds this. #}"),
    ],
)
def test_vague_name_or_text_fails(file: str, text: str) -> None:
    assert vague(file, text)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.py", 'def read(of_job): \n    """Return what a job left."""'),
        ("a.py", "# A comment that continues in the next line:\n# What is a continuation is no start."),
        ("a.sh", "# The state of the node:\n# What is a continuation is no start.\ntold_by_slurm=1"),
    ],
)
def test_clear_name_and_text_pass(file: str, text: str) -> None:
    assert vague(file, text) == []
