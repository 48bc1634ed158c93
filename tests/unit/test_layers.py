"""The parts of the toolkit meet in files and variables, never in each other's code (docs/flow.md)."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import CHECKOUT

PARTS = {
    "images": CHECKOUT / "images",
    "slurm": CHECKOUT / "slurm",
    "verl_node": CHECKOUT / "entrypoints" / "verl_node",
}


def imported(source: Path) -> set[str]:
    """The top-level packages that a module imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("part", PARTS)
def test_a_part_never_imports_another(part: str) -> None:
    others = PARTS.keys() - {part}
    sources = list(PARTS[part].rglob("*.py"))

    assert sources
    assert {str(source): found for source in sources if (found := imported(source) & others)} == {}


@pytest.mark.parametrize("module", ["__main__", "node", "head", "worker", "settings", "process", "formation"])
def test_the_supervisor_imports_neither_ray_nor_torch(module: str) -> None:
    assert not imported(PARTS["verl_node"] / f"{module}.py") & {"ray", "torch", "transformers", "verl"}


def test_a_worker_does_without_the_modules_of_the_head() -> None:
    script = "import sys, verl_node.__main__, verl_node.node.worker; print(*sys.modules)"
    environ = {"PYTHONPATH": str(PARTS["verl_node"].parent)}
    loaded = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True)

    assert not {"verl_node.node.head", "verl_node.training.run", "yaml"} & set(loaded.stdout.split())


def test_only_the_settings_read_the_environment_of_the_supervisor() -> None:
    readers = {
        source.name
        for source in PARTS["verl_node"].glob("*.py")
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv") and isinstance(node.value, ast.Name)
        if node.value.id == "os"
    }

    # These run in processes of their own: what a Ray worker sees, and the hub's and the libraries' own variables.
    others = {"cluster.py", "ray_hook.py", "ray_start.py", "traceable.py", "hub.py", "model.py", "doctor.py"}
    assert readers - others == {"__main__.py"}
