"""The parts of the toolkit meet in files and variables (docs/flow.md); within a part, imports run one way."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.support.paths import CHECKOUT

PARTS = {
    "images": CHECKOUT / "images",
    "slurm": CHECKOUT / "slurm",
    "verl_node": CHECKOUT / "entrypoints" / "verl_node",
}
LOWEST_FIRST = {
    "images": "errors host catalog engine registry pins contents context report builds provenance export tasks",
    "verl_node": """
        errors versions no_openssl reporting gpu network supervision settings ray_node explain checks control inputs
        training configuration prepare node __main__""",
}
ORDER = {part: words.split() for part, words in LOWEST_FIRST.items()}
MOST_MODULES = 17


def modules(part: str) -> dict[str, Path]:
    """The modules of a part by their dotted names."""
    top = PARTS[part]
    found = {}
    for source in top.rglob("*.py"):
        name = ".".join((part, *source.relative_to(top).with_suffix("").parts))
        found[name.removesuffix(".__init__")] = source
    return found


def imported(source: Path) -> set[str]:
    """The dotted names that a module imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def tops(source: Path) -> set[str]:
    return {name.partition(".")[0] for name in imported(source)}


def package(name: str) -> str:
    """The package of a part that a module is in, or the module's own name at the top."""
    return name.split(".")[1]


@pytest.mark.parametrize("part", PARTS)
def test_a_part_never_imports_another(part: str) -> None:
    others = PARTS.keys() - {part}
    sources = list(PARTS[part].rglob("*.py"))

    assert sources
    assert {str(source): found for source in sources if (found := tops(source) & others)} == {}


@pytest.mark.parametrize("part", ORDER)
def test_the_order_names_every_package(part: str) -> None:
    assert {package(name) for name in modules(part) if name != part} == set(ORDER[part])


@pytest.mark.parametrize("part", ORDER)
def test_a_package_imports_only_lower_ones(part: str) -> None:
    rank = {name: place for place, name in enumerate(ORDER[part])}
    known = modules(part)
    upward = [
        f"{name} imports {other}"
        for name, source in known.items()
        for other in imported(source) & known.keys() - {part}
        if name != part and rank[package(other)] > rank[package(name)]
    ]

    assert upward == []


@pytest.mark.parametrize("part", PARTS)
def test_no_modules_import_one_another_in_a_circle(part: str) -> None:
    known = modules(part)
    packages = {name for name, source in known.items() if source.name == "__init__.py"}
    graph = {name: (imported(source) & known.keys()) - packages - {name} for name, source in known.items()}

    TopologicalSorter(graph).prepare()  # CycleError names them


@pytest.mark.parametrize("part", PARTS)
def test_no_package_has_more_modules_than_a_reader_overlooks(part: str) -> None:
    folders = {source.parent for source in modules(part).values()}
    counts = {str(folder): len([*folder.glob("*.py")]) for folder in folders}

    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_benchmarks_import_nothing_from_the_tests() -> None:
    sources = sorted((CHECKOUT / "bench").rglob("*.py"))

    assert sources
    assert [str(source.relative_to(CHECKOUT)) for source in sources if "tests" in tops(source)] == []


def test_the_supervisor_imports_neither_ray_nor_torch() -> None:
    supervisor = ["__main__", "node/node", "node/head", "node/worker", "settings/settings", "supervision/child"]
    for module in [*supervisor, "ray_node/driver"]:
        assert not tops(PARTS["verl_node"] / f"{module}.py") & {"ray", "torch", "transformers", "verl"}


def test_a_worker_does_without_the_modules_of_the_head() -> None:
    script = "import sys, verl_node.__main__, verl_node.node.worker; print(*sys.modules)"
    environ = {"PYTHONPATH": str(PARTS["verl_node"].parent)}
    loaded = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True)

    assert not {"verl_node.node.head", "verl_node.training.run", "yaml"} & set(loaded.stdout.split())


def test_only_the_settings_read_the_environment_of_the_supervisor() -> None:
    readers = {
        str(source.relative_to(PARTS["verl_node"]))
        for source in PARTS["verl_node"].rglob("*.py")
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv") and isinstance(node.value, ast.Name)
        if node.value.id == "os"
    }

    # These run in processes of their own: what a Ray worker sees, and the hub's and the libraries' own variables.
    ray_node = {f"ray_node/{name}.py" for name in ("driver_main", "hook", "start", "worker_setup")}
    others = {*ray_node, "inputs/hub.py", "inputs/model.py", "checks/__main__.py", "checks/child.py"}
    assert readers - others == {"__main__.py"}
