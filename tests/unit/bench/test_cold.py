"""The package index of the cold-build benchmark serves files under the names that pip requests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.images.index_server import IndexServer, package_name, serving
from images.catalog.catalog import Catalog
from images.pins import locks

FILES = {
    "antlr4-python3-runtime": "antlr4-python3-runtime-4.9.3.tar.gz",  # as PyPI has it, with hyphens
    "jaraco-text": "jaraco.text-4.0.0-py3-none-any.whl",
    "typing-extensions": "typing_extensions-4.0.0-py3-none-any.whl",
    "pyyaml": "PyYAML-6.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
}


@pytest.mark.parametrize(("name", "file"), FILES.items())
def test_package_name_of_a_file_is_normalized(name: str, file: str) -> None:
    assert package_name(file) == name


def test_lock_of_verl_cpu_has_a_source_archive_with_hyphens() -> None:
    assert "antlr4-python3-runtime" in locks.locked(Catalog.read().find("cpu"))


def test_pip_finds_a_source_archive_with_hyphens_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / FILES["antlr4-python3-runtime"]).touch()
    with serving(IndexServer("127.0.0.1", tmp_path / "files", tmp_path)) as server:
        index = f"http://{server.host}/simple"
        argv = [sys.executable, "-m", "pip", "index", "versions", "antlr4-python3-runtime", "--index-url", index]
        pip = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert "antlr4-python3-runtime (4.9.3)" in pip.stdout, pip.stderr
