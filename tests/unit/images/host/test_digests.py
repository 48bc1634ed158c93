"""A digest that is remembered is that of the bytes which are there, whatever was done to them in between."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from images.host import digests
from images.host.digests import RACY_NS, Digests, file_system

ONE, TWO = "one\n", "two\n"  # of one size


class Clock:
    """Time as the index sees it: ``ahead_ns`` of the kernel's, so that a file of now is one of long ago."""

    def __init__(self, ahead_ns: int = 10 * RACY_NS) -> None:
        self.ahead_ns = ahead_ns

    def __call__(self) -> int:
        return time.time_ns() + self.ahead_ns


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "folder/file"
    path.parent.mkdir()
    path.write_text(ONE)
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose content was read."""
    seen, read = list[str](), Digests._of_content
    monkeypatch.setattr(Digests, "_of_content", lambda self, path: seen.append(path) or read(self, path))  # type: ignore[func-returns-value]
    return seen


@pytest.fixture
def known(file: Path, tmp_path: Path) -> Digests:
    """An index that knows the file."""
    index = Digests(tmp_path / "index", Clock())
    index.sha256(str(file))
    return index


def of(path: Path, tmp_path: Path) -> str:
    """The digest by an index that knows nothing."""
    return Digests(tmp_path / "nothing").sha256(str(path))


def test_what_did_not_change_is_not_read_again_by_this_process_nor_by_the_next(
    known: Digests, file: Path, tmp_path: Path, reads: list[str]
) -> None:
    first = known.sha256(str(file))
    known.keep()

    assert Digests(tmp_path / "index", Clock()).sha256(str(file)) == first
    assert reads == []


def same_size_and_time(file: Path) -> None:
    before = file.stat()
    file.write_text(TWO)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def renamed_into_its_place(file: Path) -> None:
    before, other = file.stat(), file.with_name("other")
    other.write_text(TWO)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.rename(file)


def removed_and_made_anew(file: Path) -> None:
    before = file.stat()
    file.unlink()
    file.write_text(TWO)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def a_folder_renamed_into_its_place(file: Path) -> None:
    other = file.parent.with_name("other")
    other.mkdir()
    (other / file.name).write_text(TWO)
    file.parent.rename(file.parent.with_name("away"))
    other.rename(file.parent)


def a_link_in_its_place(file: Path) -> None:
    other = file.with_name("other")
    other.write_text(TWO)
    file.unlink()
    file.symlink_to(other.name)


def written_through_another_name(file: Path) -> None:
    before, other = file.stat(), file.with_name("other")
    os.link(file, other)
    other.write_text(TWO)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))


def appended(file: Path) -> None:
    with file.open("a") as open_file:
        open_file.write("more")


@pytest.mark.parametrize(
    "mutate",
    [
        same_size_and_time,
        renamed_into_its_place,
        removed_and_made_anew,
        a_folder_renamed_into_its_place,
        a_link_in_its_place,
        written_through_another_name,
        appended,
    ],
)
def test_another_content_is_never_taken_for_the_old_one(
    mutate: Callable[[Path], None], known: Digests, file: Path, tmp_path: Path
) -> None:
    before = known.sha256(str(file))

    mutate(file)

    assert known.sha256(str(file)) == of(file, tmp_path) != before


def test_a_link_to_another_file_is_caught(known: Digests, file: Path, tmp_path: Path) -> None:
    other, link = file.with_name("other"), file.with_name("link")
    other.write_text(TWO)
    link.symlink_to(file.name)
    before = known.sha256(str(link))
    link.unlink()
    link.symlink_to(other.name)

    assert known.sha256(str(link)) == of(other, tmp_path) != before


def test_a_chmod_has_the_file_read_again(known: Digests, file: Path, reads: list[str]) -> None:
    file.chmod(0o700)
    known.sha256(str(file))

    assert reads == [str(file)]


def test_a_file_that_was_changed_just_now_is_read_each_time(file: Path, tmp_path: Path, reads: list[str]) -> None:
    index = Digests(tmp_path / "index", Clock(0))
    for _ in range(3):
        index.sha256(str(file))

    assert reads == [str(file)] * 3


def test_an_edit_within_the_granule_of_the_files_time_is_caught(file: Path, tmp_path: Path) -> None:
    """As on a file system that counts seconds: stat tells the same before and after."""
    frozen = file.stat()
    index = Digests(tmp_path / "index", lambda: frozen.st_ctime_ns + RACY_NS)
    before = index.sha256(str(file), frozen)
    file.write_text(TWO)

    assert index.sha256(str(file), frozen) != before


def test_a_file_of_a_clock_that_is_set_back_since_is_not_remembered(
    file: Path, tmp_path: Path, reads: list[str]
) -> None:
    """Its times lie in the future, and the clock will reach them again."""
    index = Digests(tmp_path / "index", Clock(-3600 * 10**9))
    index.sha256(str(file))
    index.sha256(str(file))

    assert len(reads) == 2


def test_nothing_is_remembered_over_a_clock_that_is_set_back(
    known: Digests, file: Path, tmp_path: Path, reads: list[str]
) -> None:
    known.keep()

    Digests(tmp_path / "index", Clock(0)).sha256(str(file))

    assert reads == [str(file)]


def test_a_file_that_changes_while_it_is_read_is_not_remembered(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, size = Digests(tmp_path / "index", Clock()), digests.CHUNK
    file.write_bytes(b"x" * 2 * size)
    fstat, calls = os.fstat, list[int]()

    def edited(descriptor: int) -> os.stat_result:
        calls.append(descriptor)
        if len(calls) == 2:
            os.utime(file)
        return fstat(descriptor)

    monkeypatch.setattr(os, "fstat", edited)
    index.sha256(str(file))
    index.sha256(str(file))

    assert len(calls) == 4, "it was read twice"


@pytest.mark.parametrize("kind", ["nfs4", "9p", "fuse.sshfs", ""])
def test_a_file_system_that_others_write_to_is_read_each_time(
    kind: str, file: Path, tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "file_system", lambda _: kind)
    monkeypatch.setattr(digests, "IS_LOCAL", {})
    index = Digests(tmp_path / "index", Clock())
    for _ in range(2):
        index.sha256(str(file))

    assert len(reads) == 2


def test_a_paths_file_system_is_that_of_the_mount_it_lies_below(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
        "30 22 0:30 / /home rw shared:5 - nfs4 server:/home rw\n"
        "31 30 0:31 / /home/with\\040blank rw master:1 - xfs /dev/vdb rw\n"
        "32 22 0:32 / /opt rw - ext4 /dev/vdc rw\n"
        "33 22 0:33 / /opt rw - tmpfs tmpfs rw\n"
    )
    asked = ["/", "/homes/a", "/home/a/b", "/home/with blank/a", "/opt"]

    assert [file_system(path, mounts) for path in asked] == ["ext4", "ext4", "nfs4", "xfs", "tmpfs"]
    assert file_system("/", tmp_path / "no such file") == ""


@pytest.mark.parametrize("content", ["", "{", '{"at_ns": 1}'])
def test_an_index_that_is_cut_off_is_none(content: str, file: Path, tmp_path: Path, reads: list[str]) -> None:
    (tmp_path / "index").write_text(content)

    Digests(tmp_path / "index", Clock()).sha256(str(file))

    assert reads == [str(file)]


def test_an_index_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "KEPT_AT_MOST", 2)
    index = Digests(tmp_path / "index", Clock())
    for name in "abc":
        (tmp_path / name).write_text(name)
        index.sha256(str(tmp_path / name))
    index.keep()

    assert list(Digests(tmp_path / "index", Clock())._known) == [str(tmp_path / name) for name in "bc"]
