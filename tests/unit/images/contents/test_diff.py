"""Two images are compared path by path and package by package."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from images.contents import diff
from images.contents.diff import Change, Difference
from images.contents.filesystem import read_folders
from images.contents.packages import Package

FILES = {"etc/same": b"1", "etc/edited": b"one", "opt/gone": b"xxxx", "opt/mode": b"m"}


def tree(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "link").symlink_to("etc/same")
    return folder


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """The second has an edit of the same size and time, another mode, a new file, another link, and a file less."""
    first, second = tree(tmp_path / "a", FILES), tree(tmp_path / "b", FILES)
    (second / "etc/edited").write_bytes(b"two")
    for side in (first, second):
        os.utime(side / "etc/edited", (1, 1))
    (second / "opt/mode").chmod(0o755)
    (second / "opt/gone").unlink()
    (second / "opt/new").mkdir()
    (second / "opt/new/file").write_bytes(b"x" * 10)
    (second / "link").unlink()
    (second / "link").symlink_to("elsewhere")
    return first, second


def test_every_kind_of_change_is_listed_largest_first(two: tuple[Path, Path]) -> None:
    first, second = (read_folders([side]) for side in two)

    assert [(change.what, change.bytes) for change in diff.file_changes(first, second)] == [
        ("/opt/new/file", 10),
        ("/opt/gone", -4),
        ("/etc/edited", 0),
        ("/link", 0),
        ("/opt/mode", 0),
        ("/opt/new", 0),
    ]


def test_the_same_content_in_other_layers_is_no_difference(two: tuple[Path, Path], tmp_path: Path) -> None:
    whole = read_folders([two[0]])
    upper = tmp_path / "upper"
    (upper / "opt").mkdir(parents=True)
    (two[0] / "opt/gone").rename(upper / "opt/gone")

    assert diff.file_changes(whole, whole) == []
    again = read_folders([upper, two[0]])
    assert set(again) == set(whole)
    assert again["opt/gone"].path == str(upper / "opt/gone")


def test_packages_are_compared_by_kind_name_and_folder() -> None:
    def package(kind: str, name: str, version: str, where: str) -> Package:
        return Package(f"pkg:{kind}/{name}@{version}", where, name, version)

    first = [package("pypi", "ray", "1", "a"), package("pypi", "ray", "1", "b"), package("deb", "gone", "1", "d")]
    second = [package("pypi", "ray", "2", "a"), package("pypi", "ray", "1", "b"), package("pypi", "new", "3", "a")]

    assert diff.package_changes(first, second) == [
        Change("deb gone in /d", "1", ""),
        Change("pypi new in /a", "", "3"),
        Change("pypi ray in /a", "1", "2"),
    ]


def test_the_terminal_shows_the_first_changes_and_a_file_has_all(tmp_path: Path) -> None:
    files = [Change(f"/{number}", "", "-rw-r--r-- 100000 bytes", 100_000) for number in range(30)]
    found = Difference([], files, (1_000_000, 4_000_000))

    assert diff.text(found).splitlines()[:6] == [
        "size  1.0 MB → 4.0 MB, +3.0 MB",
        "",
        "packages: 0 differ",
        "",
        "files: 30 differ",
        "  /0: none → -rw-r--r-- 100000 bytes  (+0.1 MB)",
    ]
    assert diff.text(found).endswith("… and 10 more: use --output FILE for all")
    diff.write(found, tmp_path / "all.txt")
    diff.write(found, tmp_path / "all.json")
    assert "/29: none" in (tmp_path / "all.txt").read_text()
    content: dict[str, Any] = json.loads((tmp_path / "all.json").read_text())
    assert len(content["files"]) == 30
