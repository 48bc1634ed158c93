"""verl_node.node.compile_cache: which variables a job gets for the code that the node keeps."""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from verl_node.node import compile_cache

KEPT = {compile_cache.FOLDER: "/kept"}


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a torch of version 2.11, without bytecode."""
    package = tmp_path / "site" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    information = tmp_path / "site" / "torch-2.11.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Name: torch\nVersion: 2.11.0+cu130\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return package / "__init__.py"


def test_without_a_folder_nothing_is_set() -> None:
    assert compile_cache.variables({}) == compile_cache.variables({compile_cache.FOLDER: ""}) == {}


def test_every_compiler_has_its_folder(torch: Path) -> None:
    assert compile_cache.variables(KEPT) == {
        "TORCHINDUCTOR_CACHE_DIR": "/kept/inductor",
        "TRITON_CACHE_DIR": "/kept/triton",
        "VLLM_CACHE_ROOT": "/kept/vllm",
        "VLLM_DISABLE_COMPILE_CACHE": "0",
        "PYTHONPYCACHEPREFIX": "/kept/bytecode",
        "PYTHONDONTWRITEBYTECODE": "",
    }


def test_bytecode_beside_the_packages_is_used(torch: Path) -> None:
    compileall.compile_file(str(torch), quiet=1)

    assert not {"PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"} & set(compile_cache.variables(KEPT))


@pytest.mark.parametrize("name", sorted([*compile_cache.SUBFOLDERS, "VLLM_DISABLE_COMPILE_CACHE"]))
def test_an_exported_value_takes_precedence(torch: Path, name: str) -> None:
    assert name not in compile_cache.variables({**KEPT, name: "1"})


def test_an_exported_prefix_also_decides_about_writing_bytecode(torch: Path) -> None:
    exported = {**KEPT, "PYTHONPYCACHEPREFIX": "/mine", "PYTHONDONTWRITEBYTECODE": "1"}

    assert not {"PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"} & set(compile_cache.variables(exported))


@pytest.mark.parametrize("version", ["2.9.1", "unknown"])
def test_vllms_cache_stays_off_with_a_torch_that_does_not_rename(torch: Path, version: str) -> None:
    (torch.parents[1] / "torch-2.11.0.dist-info" / "METADATA").write_text(f"Name: torch\nVersion: {version}\n")

    assert "VLLM_DISABLE_COMPILE_CACHE" not in compile_cache.variables(KEPT)


def test_without_torch_there_is_no_bytecode_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    assert set(compile_cache.variables(KEPT)) == set(compile_cache.SUBFOLDERS)


def test_a_process_with_these_variables_writes_bytecode_and_the_next_reads_it(torch: Path, tmp_path: Path) -> None:
    folder = {compile_cache.FOLDER: str(tmp_path / "kept")}
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(torch.parents[1])}
    environ.update(compile_cache.variables({**folder, **environ}))

    for _ in range(2):
        subprocess.run([sys.executable, "-c", "import torch"], env=environ, check=True)

    kept = list((tmp_path / "kept" / "bytecode").rglob("torch/__init__.*.pyc"))
    assert len(kept) == 1
    assert not (torch.parent / "__pycache__").exists()
