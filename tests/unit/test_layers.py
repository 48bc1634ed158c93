"""Parts of the toolkit share files and variables only (docs/flow.md); within a part, imports run in one direction."""

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
    "images": "errors host catalog engine registry pins contents context report builds provenance release export tasks",
    "verl_node": """
        errors versions no_openssl reporting gpu network supervision settings ray_node explain checks control inputs
        training configuration prepare stage node __main__""",
}
ORDER = {part: names.split() for part, names in LOWEST_FIRST.items()}
MOST_MODULES = 17


def modules(part: str) -> dict[str, Path]:
    """Return the files of a part's modules by their dotted names."""
    top = PARTS[part]
    sources = {}
    for source in top.rglob("*.py"):
        name = ".".join((part, *source.relative_to(top).with_suffix("").parts))
        sources[name.removesuffix(".__init__")] = source
    return sources


def imported(source: Path) -> set[str]:
    """Return the dotted names that a module imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def imported_roots(source: Path) -> set[str]:
    """Return the top-level packages that a module imports."""
    return {name.partition(".")[0] for name in imported(source)}


def package(name: str) -> str:
    """Return the package of a module within its part, or the name of a top-level module."""
    return name.split(".")[1]


@pytest.mark.parametrize("part", PARTS)
def test_a_part_never_imports_another(part: str) -> None:
    others = PARTS.keys() - {part}
    sources = list(PARTS[part].rglob("*.py"))

    assert sources
    assert {str(source): found for source in sources if (found := imported_roots(source) & others)} == {}


@pytest.mark.parametrize("part", ORDER)
def test_the_order_names_every_package(part: str) -> None:
    assert {package(name) for name in modules(part) if name != part} == set(ORDER[part])


@pytest.mark.parametrize("part", ORDER)
def test_a_package_imports_only_lower_ones(part: str) -> None:
    rank = {name: index for index, name in enumerate(ORDER[part])}
    known = modules(part)
    upward = [
        f"{name} imports {other}"
        for name, source in known.items()
        for other in imported(source) & known.keys() - {part}
        if name != part and rank[package(other)] > rank[package(name)]
    ]

    assert upward == []


@pytest.mark.parametrize("part", PARTS)
def test_modules_have_no_import_cycle(part: str) -> None:
    known = modules(part)
    packages = {name for name, source in known.items() if source.name == "__init__.py"}
    graph = {name: (imported(source) & known.keys()) - packages - {name} for name, source in known.items()}

    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


@pytest.mark.parametrize("part", PARTS)
def test_no_package_has_more_modules_than_the_limit(part: str) -> None:
    folders = {source.parent for source in modules(part).values()}
    counts = {str(folder): len([*folder.glob("*.py")]) for folder in folders}

    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_benchmarks_import_nothing_from_the_tests() -> None:
    sources = sorted((CHECKOUT / "bench").rglob("*.py"))

    assert sources
    assert [str(source.relative_to(CHECKOUT)) for source in sources if "tests" in imported_roots(source)] == []


@pytest.mark.parametrize("part", PARTS)
def test_unit_tests_mirror_the_packages(part: str) -> None:
    packages = {str(source.parent.relative_to(PARTS[part])) for source in PARTS[part].rglob("*.py")}
    tests = CHECKOUT / "tests" / "unit" / part
    folders = {str(file.parent.relative_to(tests)) for file in tests.rglob("test_*.py")}

    assert folders - packages == set()


def test_the_supervisor_imports_neither_ray_nor_torch() -> None:
    supervisor = ["__main__", "node/node_facts", "node/head", "node/worker", "settings/settings", "supervision/child"]
    for module in [*supervisor, "ray_node/driver"]:
        assert not imported_roots(PARTS["verl_node"] / f"{module}.py") & {"ray", "torch", "transformers", "verl"}


def test_a_worker_does_not_load_the_modules_of_the_head() -> None:
    script = "import sys, verl_node.__main__, verl_node.node.worker; print(*sys.modules)"
    environ = {"PYTHONPATH": str(PARTS["verl_node"].parent)}
    loaded = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True)

    assert not {"verl_node.node.head", "verl_node.training.run", "yaml"} & set(loaded.stdout.split())


def test_only_main_reads_the_environment_of_the_supervisor() -> None:
    readers = {
        str(source.relative_to(PARTS["verl_node"]))
        for source in PARTS["verl_node"].rglob("*.py")
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv") and isinstance(node.value, ast.Name)
        if node.value.id == "os"
    }

    # These run in other processes: Ray workers, verl's, and children with variables of the hub and of libraries.
    ray_node = {f"ray_node/{name}.py" for name in ("driver_main", "fast_start", "start", "worker_setup")}
    inputs = {"inputs/hub.py", "inputs/model.py"}
    checks = {f"checks/{name}.py" for name in ("__main__", "child", "vllm_smoke")}
    others = {
        *ray_node,
        *inputs,
        *checks,
        "configuration/__main__.py",
        "stage.py",
        "gpu/count.py",
        "training/ipc_sockets.py",
    }
    assert readers - others == {"__main__.py"}
