"""Finds the code of verl's releases that a Python cannot run, although their METADATA admits it.

verl 0.4.1 says Python >=3.8, and its actor evaluates `Tuple[list, list | None]` at every step: a TypeError before 3.10
(verl-project/verl issue 2304), which neither an import of verl nor compiling it shows. So each file that a training
with FSDP imports is parsed with the grammar of each Python of the catalog, and its annotations that are evaluated at
run time are searched for unions. The result is in images/pins/metadata/python.json; `invoke image.pins --update` writes
it again.
"""

from __future__ import annotations

import ast
import io
import json
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path

from images.catalog.verl_releases import admits, known
from images.host.paths import VERL_PYTHON
from images.host.process import run

UNIONS_SINCE = (3, 10)  # PEP 604
ROLLOUTS = {"vllm": "vllm_rollout", "sglang": "sglang_rollout.sglang_rollout"}
TRAINING = ("verl.trainer.main_ppo", "verl.workers.fsdp_workers", "verl.workers.engine_workers")  # the last since 0.7
# Parts of verl that a training with FSDP and one of ROLLOUTS does not import, though functions name them.
OTHERS = {"megatron", "mcore", "mindspeed", "veomni", "torchtitan", "automodel", "trtllm"}
Findings = dict[str, dict[str, list[str]]]  # by Python and rollout


def update(pythons: Iterable[str]) -> Path:
    """Write the findings of each release with stored metadata, for those Pythons, such as 3.9, that it admits."""
    releases = {release: [python for python in sorted(pythons) if admits(release, python)] for release in known()}
    found = {release: find(download(release), admitted) for release, admitted in releases.items()}
    VERL_PYTHON.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return VERL_PYTHON


def download(release: str) -> bytes:
    """Return a release's wheel from the package index."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--quiet", "--no-deps", "--ignore-requires-python", "--only-binary", ":all:", "--dest", folder]
        run([sys.executable, "-m", "pip", "download", *flags, f"verl=={release}"])
        return next(Path(folder).glob("*.whl")).read_bytes()


def find(wheel: bytes, pythons: Iterable[str]) -> Findings:
    """Return the lines that a training cannot run, without the Pythons and rollouts for which there are none."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        files = {name: archive.read(name).decode("utf-8") for name in archive.namelist() if name.endswith(".py")}
    findings: Findings = {}
    for rollout, module in ROLLOUTS.items():
        roots = [*TRAINING, f"verl.workers.rollout.{module}"]
        used = imported(files, roots, OTHERS | (set(ROLLOUTS) - {rollout}))
        for python in pythons:
            version = _version(python)
            if lines := [line for name in sorted(used) for line in unusable(name, files[name], version)]:
                findings.setdefault(python, {})[rollout] = lines
    return findings


def imported(files: Mapping[str, str], roots: Iterable[str], without: Set[str]) -> set[str]:
    """Return the files that modules import, also inside functions, without modules of other back ends."""
    modules = {name[:-3].removesuffix("/__init__").replace("/", "."): name for name in files}
    found, left = set[str](), list(roots)
    while left:
        module = left.pop()
        for parent in _with_parents(module):
            name = modules.get(parent)
            if name and name not in found and not any(word in parent for word in without):
                found.add(name)
                left += _imports(parent, name, _parse(files[name]))
    return found


def unusable(name: str, text: str, python: tuple[int, int]) -> Iterator[str]:
    """Yield the lines of a file that this Python cannot run: `FILE:LINE: REASON`."""
    try:
        tree = _parse(text, python)
    except SyntaxError as error:
        yield f"{name}:{error.lineno}: {error.msg}"
        return
    if python >= UNIONS_SINCE:
        return
    for annotation, when in _evaluated(tree):
        if any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) for node in ast.walk(annotation)):
            yield f"{name}:{annotation.lineno}: `{ast.unparse(annotation)}` needs Python 3.10, at each {when}"


def _parse(text: str, python: tuple[int, int] | None = None) -> ast.Module:
    """Parse a file of verl with the grammar of a Python, without warnings about its escape sequences."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text, feature_version=python)


def _evaluated(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """Yield annotations that Python evaluates, and when; PEP 563 makes them texts, which pydantic evaluates again."""
    futures = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    texts = any(alias.name == "annotations" for node in futures for alias in node.names)
    yield from _annotations(tree, "import", texts=texts)


def _annotations(node: ast.AST, when: str, *, texts: bool) -> Iterator[tuple[ast.expr, str]]:
    for child in ast.iter_child_nodes(node):
        inner, inner_texts = when, texts
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if not texts:
                yield from ((annotation, when) for annotation in _of_function(child))
            inner = "call"
        elif isinstance(child, ast.ClassDef):
            inner_texts = texts and not any(ast.unparse(base).endswith("BaseModel") for base in child.bases)
        # A local variable's annotation is never evaluated (PEP 526).
        elif isinstance(child, ast.AnnAssign) and not texts and (when == "import" or isinstance(node, ast.ClassDef)):
            yield child.annotation, when
        yield from _annotations(child, inner, texts=inner_texts)


def _of_function(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    annotations = [each.annotation for each in arguments if each] + [function.returns]
    return [annotation for annotation in annotations if annotation]


def _imports(module: str, name: str, tree: ast.Module) -> Iterator[str]:
    """Yield the dotted names that a module imports anywhere; the last part may be no module."""
    package = module if name.endswith("__init__.py") else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def _with_parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)
