"""What the pages tell a reader to type is understood by what they type it to, and something or somebody has run it."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from invoke.parser import Parser
from verl_node.__main__ import _parse

from tasks import namespace
from tests.support.documented import CHECKOUT, PAGES, Command, commands

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RUNS: dict[str, dict[str, str]] = tomllib.loads(
    (CHECKOUT / "tests" / "support" / "documented.toml").read_text(encoding="utf-8")
)
FOLDERS = "bench|bootstrap|dockerfiles|docs|entrypoints|images|slurm|tests"
# A file or a folder of ours as text and commands name it; what has a * or <name> in it stands for several.
ENDINGS = "py|sh|toml|yaml|md|txt|env|j2|csv|json"
PLACE = re.compile(rf"(?<![\w/.*<>-])((?:{FOLDERS})/(?:[\w.-]+/)*(?:[\w.-]+\.(?:{ENDINGS}))?)(?![\w<])")
TASKS = [each for each in commands() if each.program == "invoke"]
BENCHES = [each for each in commands() if each.program == "python" and each.words[1].startswith("bench/")]
NO_ENGINE = ("image.list", "render", "image.pins", "image.site")
AS_THEY_STAND = sorted({each.words[1:] for each in TASKS if each.whole and each.words[1] in NO_ENGINE})


# A test as docs/security.md names it: file::function, or ::function of the file before.
SHOWN_BY = re.compile(r"(tests/[\w/]+\.py)?(?:::(test_\w+))?")


def shown_by() -> list[tuple[str, str]]:
    """Return the (file, function) of every test that docs/security.md names; the function may be empty."""
    named, file = [], ""
    for match in SHOWN_BY.finditer((CHECKOUT / "docs" / "security.md").read_text(encoding="utf-8")):
        file = match[1] or file
        if match[1] or match[2]:
            named.append((file, match[2] or ""))
    return named


def written(command: Command) -> str:
    return f"{command.page}: {' '.join(command.words)}"


def flags_of(task: str) -> set[str]:
    names = {name for argument in namespace[task].get_arguments() for name in argument.names}
    return {f"--{name}" for name in names if len(name) > 1}


def test_every_task_and_flag_that_is_named_is_there() -> None:
    known = {"--no-install", "--list"}  # of ./run and of Invoke
    unknown = []
    for command in TASKS:
        told = [word for word in command.kind.split() if word not in ("invoke", "--", *command.environment)]
        names = [word for word in told if not word.startswith("-")]
        flags = known.union(*(flags_of(name) for name in names if name in namespace.task_names))
        if not set(names) <= set(namespace.task_names) or not {word for word in told if word not in names} <= flags:
            unknown.append(written(command))

    assert unknown == []


@pytest.mark.parametrize("command", [each for each in TASKS if each.whole], ids=written)
def test_a_command_of_a_block_has_all_that_its_task_asks_for(command: Command) -> None:
    words = [word for word in command.words[1:] if word != "--no-install"]
    own = words[: words.index("--")] if "--" in words else words

    result = Parser(contexts=namespace.to_contexts()).parse_argv(own)

    assert [context.name for context in result] == [own[0]]
    assert not result[0].missing_positional_args


@pytest.mark.parametrize("command", BENCHES, ids=written)
def test_a_bench_takes_the_flags_that_it_is_given(command: Command) -> None:
    text = (CHECKOUT / command.words[1]).read_text(encoding="utf-8")

    assert [word for word in command.words[2:] if word.startswith("--") and f'"{word}"' not in text] == []


@pytest.mark.parametrize("command", [each for each in commands() if each.program == "docker"], ids=written)
def test_a_node_by_hand_takes_the_flags_that_it_is_given(command: Command) -> None:
    words = command.words[command.words.index("node") + 1 :]

    assert vars(_parse(words))


def test_every_command_has_a_test_or_somebody_who_ran_it_and_nothing_else_is_listed() -> None:
    listed = [kind for table in RUNS.values() for kind in table]

    assert sorted({each.kind for each in commands()}) == sorted(listed)


@pytest.mark.parametrize("test", sorted(set(RUNS["tests"].values())))
def test_a_test_that_is_named_is_there(test: str) -> None:
    path, _, name = test.partition("::")
    tree = ast.parse((CHECKOUT / path).read_text(encoding="utf-8"))

    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", [*PAGES, CHECKOUT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_every_place_that_a_page_names_is_there(page: Path) -> None:
    places = PLACE.findall(page.read_text(encoding="utf-8"))

    assert [place for place in places if not (CHECKOUT / place).exists()] == []


def ran(*words: str, folder: Path = CHECKOUT) -> str:
    argv = [sys.executable, "-m", "invoke", "--search-root", str(CHECKOUT), *words]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("words", [("--list",), ("image.site",), *AS_THEY_STAND])
def test_what_needs_no_engine_runs_as_it_stands(words: tuple[str, ...]) -> None:
    assert len(ran(*words).splitlines()) > 1


def test_a_failed_job_is_explained_by_each_of_its_names(tmp_path: Path) -> None:
    log = tmp_path / "verljob" / "4711" / "attempt-1" / "nodes" / "0-n1" / "node.log"
    log.parent.mkdir(parents=True)
    for path in (log, tmp_path / "slurm-verl-4711.out"):
        path.write_text("OSError: [Errno 122] Disk quota exceeded: 'x'\n", encoding="utf-8")

    page = [each.words[1:] for each in TASKS if each.page == "troubleshooting.md" and each.words[1] == "job.explain"]
    told = [ran(*words, folder=tmp_path) for words in page]

    assert len(told) == 5
    assert all("Disk quota exceeded" in each for each in told)
    assert json.loads(told[3])["class"] == "data"


def test_what_somebody_ran_by_hand_says_what_came_of_it() -> None:
    assert [command for command, came in RUNS["by_hand"].items() if not came or "todo" in came.lower()] == []


def test_every_test_that_the_page_of_security_names_exists() -> None:
    missing = []
    for file, function in shown_by():
        path = CHECKOUT / file
        tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        if not path.is_file() or (function and function not in functions):
            missing.append(f"{file}::{function}")

    assert len(shown_by()) > 60
    assert missing == []
