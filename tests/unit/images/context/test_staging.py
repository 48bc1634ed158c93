"""A staged folder has exactly the added entries; unchanged files are not written, changed ones get a new mtime."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from images.context.staging import Staging
from images.host.digests import DigestCache


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "below").mkdir(parents=True)
    (folder / "below/run.sh").write_text(":\n")
    (folder / "file").write_text("one\n")
    (folder / "link").symlink_to("file")
    os.mkfifo(folder / "fifo")
    (folder / "left-out").touch()
    return folder


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "a.whl"
    path.write_bytes(b"wheel 1")
    return path


@pytest.fixture
def stage(tmp_path: Path, checkout: Path, wheel: Path) -> Callable[[], Path]:
    """Stages the checkout, a text and the wheel, each time with caches read from disk."""

    def staged() -> Path:
        folder = tmp_path / "staged"
        with Staging(folder, DigestCache(tmp_path / "sources"), DigestCache(tmp_path / "digests")) as staging:
            staging.text("text", "text\n")
            staging.tree("tree", str(checkout), "left-out".__eq__, lambda name, _: 0o755 if ".sh" in name else 0o644)
            staging.link("wheels/a.whl", wheel)
            staging.folder("empty")
        return folder

    return staged


def contents(folder: Path) -> dict[str, tuple[str, str]]:
    """Every path with its mode and content."""
    found = {}
    for path in folder.rglob("*"):
        content = os.readlink(path) if path.is_symlink() else "" if path.is_dir() else path.read_text()
        found[str(path.relative_to(folder))] = (f"{path.lstat().st_mode:o}", content)
    return found


EXPECTED = {
    "text": ("100644", "text\n"),
    "tree": ("40755", ""),
    "tree/below": ("40755", ""),
    "tree/below/run.sh": ("100755", ":\n"),
    "tree/file": ("100644", "one\n"),
    "tree/link": ("120777", "file"),
    "wheels": ("40755", ""),
    "wheels/a.whl": ("100644", "wheel 1"),
    "empty": ("40755", ""),
}


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_a_folder_has_the_added_entries_with_any_umask(umask: int, stage: Callable[[], Path], wheel: Path) -> None:
    before = os.umask(umask)
    try:
        folder = stage()
    finally:
        os.umask(before)

    assert contents(folder) == EXPECTED
    assert folder.stat().st_mode & 0o777 == 0o755
    assert (folder / "wheels/a.whl").samefile(wheel)


def test_unchanged_files_are_left_alone(stage: Callable[[], Path]) -> None:
    def states() -> dict[str, tuple[int, int, int]]:
        found = ((path, path.lstat()) for path in stage().rglob("*"))
        return {str(path): (state.st_ino, state.st_mtime_ns, state.st_ctime_ns) for path, state in found}

    assert states() == states()


def a_file_is_edited(folder: Path) -> None:
    (folder / "tree/file").write_text("two\n")


def a_file_goes(folder: Path) -> None:
    (folder / "tree/below/run.sh").unlink()


def files_come(folder: Path) -> None:
    (folder / "new/below").mkdir(parents=True)
    (folder / "new/below/file").touch()
    (folder / "tree/new").symlink_to("nowhere")


def a_mode_changes(folder: Path) -> None:
    for path in ("text", "tree/file", "tree"):
        (folder / path).chmod(0o700)


def a_file_becomes_a_folder(folder: Path) -> None:
    for path in ("text", "tree/file", "tree/link", "wheels/a.whl"):
        (folder / path).unlink()
        (folder / path / "below").mkdir(parents=True)


def a_folder_becomes_a_link(folder: Path) -> None:
    (folder / "tree/below").rename(folder / "below")
    (folder / "tree/below").symlink_to(folder / "below")


def a_link_is_another(folder: Path) -> None:
    (folder / "tree/link").unlink()
    (folder / "tree/link").symlink_to("elsewhere")


def a_text_is_edited(folder: Path) -> None:
    (folder / "text").write_text("TEXT\n")


@pytest.mark.parametrize(
    "mutate",
    [
        a_file_is_edited,
        a_file_goes,
        files_come,
        a_mode_changes,
        a_file_becomes_a_folder,
        a_folder_becomes_a_link,
        a_link_is_another,
        a_text_is_edited,
    ],
)
def test_changes_in_a_staged_folder_are_undone(mutate: Callable[[Path], None], stage: Callable[[], Path]) -> None:
    mutate(stage())

    assert contents(stage()) == EXPECTED


def test_an_edit_that_restores_size_and_time_is_staged_with_a_new_time(
    stage: Callable[[], Path], checkout: Path
) -> None:
    """Otherwise BuildKit would not send it."""
    staged, state = stage() / "tree/file", (checkout / "file").stat()
    before = staged.stat()
    (checkout / "file").write_text("two\n")
    os.utime(checkout / "file", ns=(state.st_atime_ns, state.st_mtime_ns))
    stage()

    assert staged.read_text() == "two\n"
    assert staged.stat().st_mtime_ns != before.st_mtime_ns


def test_a_staged_file_is_not_a_hard_link_to_the_checkout(
    stage: Callable[[], Path], tmp_path: Path, checkout: Path
) -> None:
    """Older versions left such links: an edit of the checkout would change the staged file without a new time."""
    staged = stage() / "tree/file"
    staged.unlink()
    os.link(checkout / "file", staged)
    stage()

    assert not staged.samefile(checkout / "file")


def test_another_wheel_of_the_same_size_and_time_gets_a_new_time(stage: Callable[[], Path], wheel: Path) -> None:
    staged, state = stage() / "wheels/a.whl", wheel.stat()
    wheel.unlink()
    wheel.write_bytes(b"wheel 2")
    os.utime(wheel, ns=(state.st_atime_ns, state.st_mtime_ns))
    stage()

    assert staged.read_bytes() == b"wheel 2"
    assert staged.stat().st_mtime_ns != state.st_mtime_ns


def test_a_failed_staging_removes_nothing(stage: Callable[[], Path], tmp_path: Path) -> None:
    folder, cache = stage(), DigestCache(tmp_path / "digests")
    with pytest.raises(FileNotFoundError), Staging(folder, cache, cache) as staging:
        staging.file("tree/file", str(tmp_path / "no such file"))

    assert contents(folder) == EXPECTED


def test_the_digest_of_a_folder_depends_on_names_and_content_of_copied_files(tmp_path: Path, checkout: Path) -> None:
    cache = DigestCache(tmp_path / "digests")

    def digest(name: str) -> str:
        with Staging(tmp_path / "staged", cache, cache) as staging:
            staging.text(f"{name}/text", str(os.urandom(8)))
            staging.tree(name, str(checkout), "left-out".__eq__, lambda *_: 0o644)
            staging.file("other/file", str(checkout / "file"))
            return staging.digest(name)

    first = digest("a")
    assert digest("a") == first, "texts do not count"
    (checkout / "file").rename(checkout / "renamed")
    (checkout / "file").write_text("one\n")
    (checkout / "renamed").unlink()
    assert digest("a") == first
    (checkout / "file").write_text("two\n")
    assert digest("a") != first
