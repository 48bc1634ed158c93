"""A cached digest is always that of the current bytes, whatever happened to the file in between."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from images.host import digests
from images.host.digests import RACY_NS, DigestCache, file_system

ONE, TWO = "one\n", "two\n"  # same size


class Clock:
    """The cache's clock: ``ahead_ns`` of the kernel's, so that a file written now looks old."""

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
    paths, read = list[str](), DigestCache._read
    monkeypatch.setattr(DigestCache, "_read", lambda self, path: paths.append(path) or read(self, path))  # type: ignore[func-returns-value]
    return paths


@pytest.fixture
def cache(file: Path, tmp_path: Path) -> DigestCache:
    """A cache with the file's digest."""
    cache = DigestCache(tmp_path / "cache", Clock())
    cache.sha256(str(file))
    return cache


def uncached_digest(path: Path, tmp_path: Path) -> str:
    return DigestCache(tmp_path / "empty").sha256(str(path))


def test_an_unchanged_file_is_not_read_again_by_this_or_the_next_process(
    cache: DigestCache, file: Path, tmp_path: Path, reads: list[str]
) -> None:
    first = cache.sha256(str(file))
    cache.save()

    assert DigestCache(tmp_path / "cache", Clock()).sha256(str(file)) == first
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


def removed_and_made_again(file: Path) -> None:
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
        removed_and_made_again,
        a_folder_renamed_into_its_place,
        a_link_in_its_place,
        written_through_another_name,
        appended,
    ],
)
def test_changed_content_is_always_noticed(
    mutate: Callable[[Path], None], cache: DigestCache, file: Path, tmp_path: Path
) -> None:
    before = cache.sha256(str(file))

    mutate(file)

    assert cache.sha256(str(file)) == uncached_digest(file, tmp_path) != before


def test_a_retargeted_link_is_noticed(cache: DigestCache, file: Path, tmp_path: Path) -> None:
    other, link = file.with_name("other"), file.with_name("link")
    other.write_text(TWO)
    link.symlink_to(file.name)
    before = cache.sha256(str(link))
    link.unlink()
    link.symlink_to(other.name)

    assert cache.sha256(str(link)) == uncached_digest(other, tmp_path) != before


def test_a_file_is_read_again_after_a_chmod(cache: DigestCache, file: Path, reads: list[str]) -> None:
    file.chmod(0o700)
    cache.sha256(str(file))

    assert reads == [str(file)]


def test_a_recently_changed_file_is_read_each_time(file: Path, tmp_path: Path, reads: list[str]) -> None:
    cache = DigestCache(tmp_path / "cache", Clock(0))
    for _ in range(3):
        cache.sha256(str(file))

    assert reads == [str(file)] * 3


def test_an_edit_within_the_resolution_of_the_files_time_is_noticed(file: Path, tmp_path: Path) -> None:
    """As on a file system that counts seconds, stat returns the same before and after."""
    frozen = file.stat()
    cache = DigestCache(tmp_path / "cache", lambda: frozen.st_ctime_ns + RACY_NS)
    before = cache.sha256(str(file), frozen)
    file.write_text(TWO)

    assert cache.sha256(str(file), frozen) != before


def test_a_file_with_times_in_the_future_is_not_cached(file: Path, tmp_path: Path, reads: list[str]) -> None:
    """The clock was set back, and will reach them again."""
    cache = DigestCache(tmp_path / "cache", Clock(-3600 * 10**9))
    cache.sha256(str(file))
    cache.sha256(str(file))

    assert len(reads) == 2


def test_a_cache_of_the_future_is_ignored(cache: DigestCache, file: Path, tmp_path: Path, reads: list[str]) -> None:
    cache.save()

    DigestCache(tmp_path / "cache", Clock(0)).sha256(str(file))

    assert reads == [str(file)]


def test_a_file_that_changes_while_it_is_read_is_not_cached(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, size = DigestCache(tmp_path / "cache", Clock()), digests.CHUNK
    file.write_bytes(b"x" * 2 * size)
    fstat, calls = os.fstat, list[int]()

    def edited(descriptor: int) -> os.stat_result:
        calls.append(descriptor)
        if len(calls) == 2:
            os.utime(file)
        return fstat(descriptor)

    monkeypatch.setattr(os, "fstat", edited)
    cache.sha256(str(file))
    cache.sha256(str(file))

    assert len(calls) == 4, "it was read twice"


@pytest.mark.parametrize("kind", ["nfs4", "9p", "fuse.sshfs", ""])
def test_files_on_a_network_file_system_are_read_each_time(
    kind: str, file: Path, tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "file_system", lambda _: kind)
    monkeypatch.setattr(digests, "IS_LOCAL", {})
    cache = DigestCache(tmp_path / "cache", Clock())
    for _ in range(2):
        cache.sha256(str(file))

    assert len(reads) == 2


def test_the_file_system_of_a_path_is_that_of_its_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
        "30 22 0:30 / /home rw shared:5 - nfs4 server:/home rw\n"
        "31 30 0:31 / /home/with\\040blank rw master:1 - xfs /dev/vdb rw\n"
        "32 22 0:32 / /opt rw - ext4 /dev/vdc rw\n"
        "33 22 0:33 / /opt rw - tmpfs tmpfs rw\n"
    )
    paths = ["/", "/homes/a", "/home/a/b", "/home/with blank/a", "/opt"]

    assert [file_system(path, mounts) for path in paths] == ["ext4", "ext4", "nfs4", "xfs", "tmpfs"]
    assert file_system("/", tmp_path / "no such file") == ""


@pytest.mark.parametrize("content", ["", "{", '{"at_ns": 1}'])
def test_a_truncated_cache_is_ignored(content: str, file: Path, tmp_path: Path, reads: list[str]) -> None:
    (tmp_path / "cache").write_text(content)

    DigestCache(tmp_path / "cache", Clock()).sha256(str(file))

    assert reads == [str(file)]


def test_a_cache_has_a_maximum_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "MAX_ENTRIES", 2)
    cache = DigestCache(tmp_path / "cache", Clock())
    for name in "abc":
        (tmp_path / name).write_text(name)
        cache.sha256(str(tmp_path / name))
    cache.save()

    assert list(DigestCache(tmp_path / "cache", Clock())._entries) == [str(tmp_path / name) for name in "bc"]
