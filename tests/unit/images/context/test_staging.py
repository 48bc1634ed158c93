"""A staged folder is what was told, whatever lay there; what stays is not written, what changes gets a new time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from images.context.staging import Staging
from images.host.digests import Digests


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
    """Stage the checkout, a text and the wheel, each time by an index that was read anew."""

    def staged() -> Path:
        folder = tmp_path / "staged"
        with Staging(folder, Digests(tmp_path / "sources"), Digests(tmp_path / "digests")) as staging:
            staging.text("text", "told\n")
            staging.tree("tree", str(checkout), "left-out".__eq__, lambda name, _: 0o755 if ".sh" in name else 0o644)
            staging.link("wheels/a.whl", wheel)
            staging.folder("empty")
        return folder

    return staged


def seen(folder: Path) -> dict[str, tuple[str, str]]:
    """Every path with its mode and what it holds."""
    found = {}
    for path in folder.rglob("*"):
        holds = os.readlink(path) if path.is_symlink() else "" if path.is_dir() else path.read_text()
        found[str(path.relative_to(folder))] = (f"{path.lstat().st_mode:o}", holds)
    return found


TOLD = {
    "text": ("100644", "told\n"),
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
def test_a_folder_holds_what_was_told_whatever_the_umask(umask: int, stage: Callable[[], Path], wheel: Path) -> None:
    before = os.umask(umask)
    try:
        folder = stage()
    finally:
        os.umask(before)

    assert seen(folder) == TOLD
    assert folder.stat().st_mode & 0o777 == 0o755
    assert (folder / "wheels/a.whl").samefile(wheel)


def test_what_stays_is_left_alone(stage: Callable[[], Path]) -> None:
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
    (folder / "text").write_text("TOLD\n")


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
def test_a_staged_folder_that_was_changed_is_mended(mutate: Callable[[Path], None], stage: Callable[[], Path]) -> None:
    mutate(stage())

    assert seen(stage()) == TOLD


def test_an_edit_that_restores_size_and_time_is_staged_with_another_time(
    stage: Callable[[], Path], checkout: Path
) -> None:
    """BuildKit would not send it otherwise."""
    staged, state = stage() / "tree/file", (checkout / "file").stat()
    before = staged.stat()
    (checkout / "file").write_text("two\n")
    os.utime(checkout / "file", ns=(state.st_atime_ns, state.st_mtime_ns))
    stage()

    assert staged.read_text() == "two\n"
    assert staged.stat().st_mtime_ns != before.st_mtime_ns


def test_what_is_staged_is_nobody_elses(stage: Callable[[], Path], tmp_path: Path, checkout: Path) -> None:
    """As an older staging left it, a link to the checkout's own file: an edit would change it without a new time."""
    staged = stage() / "tree/file"
    staged.unlink()
    os.link(checkout / "file", staged)
    stage()

    assert not staged.samefile(checkout / "file")


def test_another_wheel_of_the_same_size_and_time_gets_a_time_of_its_own(stage: Callable[[], Path], wheel: Path) -> None:
    staged, state = stage() / "wheels/a.whl", wheel.stat()
    wheel.unlink()
    wheel.write_bytes(b"wheel 2")
    os.utime(wheel, ns=(state.st_atime_ns, state.st_mtime_ns))
    stage()

    assert staged.read_bytes() == b"wheel 2"
    assert staged.stat().st_mtime_ns != state.st_mtime_ns


def test_nothing_is_removed_where_staging_fails(stage: Callable[[], Path], tmp_path: Path) -> None:
    folder, known = stage(), Digests(tmp_path / "digests")
    with pytest.raises(FileNotFoundError), Staging(folder, known, known) as staging:
        staging.file("tree/file", str(tmp_path / "no such file"))

    assert seen(folder) == TOLD


def test_the_digest_of_a_folder_is_that_of_its_files_names_and_bytes(tmp_path: Path, checkout: Path) -> None:
    known = Digests(tmp_path / "digests")

    def digest(place: str) -> str:
        with Staging(tmp_path / "staged", known, known) as staging:
            staging.text(f"{place}/text", str(os.urandom(8)))
            staging.tree(place, str(checkout), "left-out".__eq__, lambda *_: 0o644)
            staging.file("other/file", str(checkout / "file"))
            return staging.digest(place)

    first = digest("a")
    assert digest("a") == first, "a text is not among them"
    (checkout / "file").rename(checkout / "renamed")
    (checkout / "file").write_text("one\n")
    (checkout / "renamed").unlink()
    assert digest("a") == first
    (checkout / "file").write_text("two\n")
    assert digest("a") != first
