"""Commands in the pages are valid, and a test runs each or documented.toml has the result of a manual run."""

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
# Path of a file or a folder of this checkout; a path with * or <name> stands for several.
ENDINGS = "py|sh|toml|yaml|md|txt|env|j2|csv|json"
PATH = re.compile(rf"(?<![\w/.*<>-])((?:{FOLDERS})/(?:[\w.-]+/)*(?:[\w.-]+\.(?:{ENDINGS}))?)(?![\w<])")
TASKS = [command for command in commands() if command.program == "invoke"]
BENCHES = [command for command in commands() if command.program == "python" and command.argv[1].startswith("bench/")]
NO_ENGINE = ("image.list", "render", "image.pins", "image.site")
WITHOUT_ENGINE = sorted({task.argv[1:] for task in TASKS if task.in_block and task.argv[1] in NO_ENGINE})


# A test in docs/security.md: file::function, or ::function of the file before.
TEST = re.compile(r"(tests/[\w/]+\.py)?(?:::(test_\w+))?")


def security_tests() -> list[tuple[str, str]]:
    """Return file and function of every test in docs/security.md; the function may be empty."""
    tests, file = [], ""
    for match in TEST.finditer((CHECKOUT / "docs" / "security.md").read_text(encoding="utf-8")):
        file = match[1] or file
        if match[1] or match[2]:
            tests.append((file, match[2] or ""))
    return tests


def command_id(command: Command) -> str:
    return f"{command.page}: {' '.join(command.argv)}"


def task_flags(task: str) -> set[str]:
    names = {name for argument in namespace[task].get_arguments() for name in argument.names}
    return {f"--{name}" for name in names if len(name) > 1}


def test_every_named_task_and_flag_exists() -> None:
    known = {"--no-install", "--list"}  # of ./run and of Invoke
    unknown = []
    for command in TASKS:
        arguments = [part for part in command.kind.split() if part not in ("invoke", "--", *command.environment)]
        names = [argument for argument in arguments if not argument.startswith("-")]
        flags = known.union(*(task_flags(name) for name in names if name in namespace.task_names))
        if (
            not set(names) <= set(namespace.task_names)
            or not {argument for argument in arguments if argument not in names} <= flags
        ):
            unknown.append(command_id(command))

    assert unknown == []


@pytest.mark.parametrize("command", [task for task in TASKS if task.in_block], ids=command_id)
def test_a_command_of_a_block_has_the_required_arguments(command: Command) -> None:
    arguments = [argument for argument in command.argv[1:] if argument != "--no-install"]
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments

    result = Parser(contexts=namespace.to_contexts()).parse_argv(own)

    assert [context.name for context in result] == [own[0]]
    assert not result[0].missing_positional_args


@pytest.mark.parametrize("command", BENCHES, ids=command_id)
def test_a_benchmark_has_the_documented_flags(command: Command) -> None:
    text = (CHECKOUT / command.argv[1]).read_text(encoding="utf-8")

    assert [flag for flag in command.argv[2:] if flag.startswith("--") and f'"{flag}"' not in text] == []


@pytest.mark.parametrize("command", [command for command in commands() if command.program == "docker"], ids=command_id)
def test_a_node_without_slurm_has_the_documented_flags(command: Command) -> None:
    arguments = command.argv[command.argv.index("node") + 1 :]

    assert vars(_parse(arguments))


def test_the_list_has_every_command_and_no_other() -> None:
    listed = [kind for table in RUNS.values() for kind in table]

    assert sorted({command.kind for command in commands()}) == sorted(listed)


@pytest.mark.parametrize("test", sorted(set(RUNS["tests"].values())))
def test_a_listed_test_exists(test: str) -> None:
    path, _, name = test.partition("::")
    tree = ast.parse((CHECKOUT / path).read_text(encoding="utf-8"))

    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", [*PAGES, CHECKOUT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_every_path_in_a_page_exists(page: Path) -> None:
    paths = PATH.findall(page.read_text(encoding="utf-8"))

    assert [path for path in paths if not (CHECKOUT / path).exists()] == []


def invoke(*arguments: str, folder: Path = CHECKOUT) -> str:
    argv = [sys.executable, "-m", "invoke", "--search-root", str(CHECKOUT), *arguments]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("arguments", [("--list",), ("image.site",), *WITHOUT_ENGINE])
def test_a_command_that_needs_no_engine_runs(arguments: tuple[str, ...]) -> None:
    assert len(invoke(*arguments).splitlines()) > 1


def test_a_failed_job_is_explained_by_number_folder_and_output(tmp_path: Path) -> None:
    log = tmp_path / "verljob" / "4711" / "attempt-1" / "nodes" / "0-n1" / "node.log"
    log.parent.mkdir(parents=True)
    for path in (log, tmp_path / "slurm-verl-4711.out"):
        path.write_text("OSError: [Errno 122] Disk quota exceeded: 'x'\n", encoding="utf-8")

    page = [task.argv[1:] for task in TASKS if task.page == "troubleshooting.md" and task.argv[1] == "job.explain"]
    outputs = [invoke(*arguments, folder=tmp_path) for arguments in page]

    assert len(outputs) == 5
    assert all("Disk quota exceeded" in output for output in outputs)
    assert json.loads(outputs[3])["class"] == "data"


def test_every_manual_run_has_a_result() -> None:
    assert [command for command, result in RUNS["manual"].items() if not result or "todo" in result.lower()] == []


def test_every_test_in_the_security_page_exists() -> None:
    missing = []
    for file, function in security_tests():
        path = CHECKOUT / file
        tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        if not path.is_file() or (function and function not in functions):
            missing.append(f"{file}::{function}")

    assert len(security_tests()) > 60
    assert missing == []
