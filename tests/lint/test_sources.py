"""Every source file passes its linter."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from images.catalog.catalog import Catalog
from images.catalog.variant import Sdist
from images.context import render
from tests.lint import shell_text
from tests.support.paths import CHECKOUT

TOOLS = Path(sys.executable).parent
NOT_OURS = {".venv", ".git", ".build", "__pycache__", "verljob"}


def sources(folder: Path = CHECKOUT) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in NOT_OURS:
            continue
        if path.is_dir():
            yield from sources(path)
        else:
            yield path


def is_shell(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(80)
    return path.suffix == ".sh" or (first.startswith(b"#!") and first.rstrip().endswith(b"sh"))


def finds_nothing(tool: str, *words: str | Path) -> bool:
    done = subprocess.run([TOOLS / tool, *words], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)  # noqa: T201  # pytest shows it when the claim fails
    return done.returncode == 0


def test_ruff_finds_nothing() -> None:
    assert finds_nothing("ruff", "check", ".")


def test_python_is_formatted_by_ruff() -> None:
    assert finds_nothing("ruff", "format", "--check", ".")


def test_mypy_strict_finds_nothing() -> None:
    assert finds_nothing("mypy", ".")


def test_shellcheck_finds_nothing() -> None:
    scripts = [path for path in sources() if is_shell(path)]

    assert CHECKOUT / "run" in scripts
    assert finds_nothing("shellcheck", "--external-sources", *scripts)


def test_hadolint_finds_nothing_in_dockerfiles() -> None:
    dockerfiles = [path for path in sources() if "Dockerfile" in path.name]

    assert CHECKOUT / "slurm" / "testbed" / "Dockerfile" in dockerfiles
    assert finds_nothing("hadolint", *dockerfiles)


@pytest.mark.parametrize("variant", ["cpu", "rocm6.2"])
def test_hadolint_finds_nothing_in_the_dockerfile_of_a_bundle(variant: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(render.bundle(Catalog.read().variants[variant]))

    assert finds_nothing("hadolint", tmp_path / "Dockerfile")


def test_hadolint_finds_nothing_in_a_dockerfile_that_compiles_flash_attn(tmp_path: Path) -> None:
    variant = replace(Catalog.read().variants["cu130-wheels"], compiles={"flash-attn": Sdist("2.8.3", "0" * 64)})
    (tmp_path / "Dockerfile").write_text(render.dockerfile(variant))

    assert finds_nothing("hadolint", tmp_path / "Dockerfile")


def test_workflows_pin_actions_by_commit() -> None:
    # The tag of an action can be moved; the version beside the commit is for readers.
    workflows = [*(CHECKOUT / ".github/workflows").glob("*.y*ml")]
    used = [line.strip() for path in workflows for line in path.read_text().splitlines() if "uses:" in line]

    assert used
    assert [line for line in used if not re.fullmatch(r"- uses: [\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*", line)] == []


DEFINED = re.compile(r"^(?:function )?(\w+::\w+)\(\)", re.MULTILINE)
CALLED = re.compile(r"(?<![\w:'\"{])(\w+::[a-z_]\w*)(?![\w:(])")


def test_every_called_function_of_a_library_is_defined() -> None:
    """shellcheck reads each file separately, so a missing function would only fail in a job."""
    texts = [path.read_text() for path in (CHECKOUT / "slurm").rglob("*.sh")]
    code = "\n".join(
        line.partition(" # ")[0] for text in texts for line in text.splitlines() if line.strip()[:1] != "#"
    )
    defined = {name for text in texts for name in DEFINED.findall(text)}

    assert len(defined) > 200
    assert set(CALLED.findall(code)) - defined == set()


LIBRARIES = sorted([*(CHECKOUT / "slurm" / "lib").rglob("*.sh"), *(CHECKOUT / "slurm" / "runtimes").glob("*.sh")])


@pytest.mark.parametrize("path", LIBRARIES, ids=lambda path: str(path.relative_to(CHECKOUT / "slurm")))
def test_the_header_of_a_library_lists_its_globals_and_descriptors(path: Path) -> None:
    text = path.read_text()

    assert shell_text.header(text) == (
        shell_text.globals_set(str(path), text),
        shell_text.descriptors_held(text),
    ), "the lines `# Sets:` and `# Descriptors:` at its top"
