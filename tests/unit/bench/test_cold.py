"""The index of the cold bench has what it serves under the names that pip asks for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from images.catalog.catalog import Catalog
from images.pins import locks
from tests.support.images import services

FILES = {
    "antlr4-python3-runtime": "antlr4-python3-runtime-4.9.3.tar.gz",  # as PyPI has it, with hyphens
    "jaraco-text": "jaraco.text-4.0.0-py3-none-any.whl",
    "typing-extensions": "typing_extensions-4.0.0-py3-none-any.whl",
    "pyyaml": "PyYAML-6.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
}


@pytest.mark.parametrize(("name", "file"), FILES.items())
def test_a_file_is_that_of_its_package(name: str, file: str) -> None:
    assert services.Handler.of(file) == name


def test_a_locks_only_source_archive_is_one_of_them() -> None:
    assert "antlr4-python3-runtime" in locks.locked(Catalog.read().find("cpu"))


def test_pip_finds_a_source_archive_with_hyphens_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / FILES["antlr4-python3-runtime"]).touch()
    passwords = {"index": "secret", "apt": "", "proxy": ""}
    with services.running("127.0.0.1", tmp_path / "files", tmp_path, "robot", passwords) as server:
        index = f"http://robot:secret@{server.host}/simple"
        argv = [sys.executable, "-m", "pip", "index", "versions", "antlr4-python3-runtime", "--index-url", index]
        said = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert "antlr4-python3-runtime (4.9.3)" in said.stdout, said.stderr
