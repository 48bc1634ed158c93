"""File trees of an image: equal from its archive, the engine's export and the folders of its layers; and compared."""

from __future__ import annotations

import io
import os
import tarfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from docker.models.images import Image

from images.contents import filesystem, rootfs
from images.contents.filesystem import CHARACTERS, FIFO, FILE, FOLDER, LINK, Entry
from images.errors import ImageError
from images.export.export import diff_ids
from tests.support.images.archives import (
    EXPECTED,
    LAYERS,
    archive_tree,
    differences,
    digest,
    docker_archive,
    layer,
    oci_archive,
    sha256,
    write_tar,
)

ONE = Entry(FILE, 0o644, (0, 0), sha256("one"), 3)


@pytest.mark.parametrize("write", [docker_archive, oci_archive])
def test_layers_overlay_one_another_as_in_an_engine(write: object, tmp_path: Path) -> None:
    assert archive_tree(write(tmp_path, *LAYERS)) == EXPECTED  # type: ignore[operator]


@pytest.mark.parametrize("write", [docker_archive, oci_archive])
def test_diff_ids_are_the_digests_of_the_uncompressed_layers(write: object, tmp_path: Path) -> None:
    assert diff_ids(write(tmp_path, *LAYERS)) == [digest(each) for each in LAYERS]  # type: ignore[operator]


def test_a_hard_link_keeps_its_content_when_an_upper_layer_replaces_its_target(tmp_path: Path) -> None:
    lower, upper = layer(("a", "one")), layer(("b", "=a"), ("a", "two"))

    tree = archive_tree(docker_archive(tmp_path, lower, upper))

    assert [tree[name].content for name in "ab"] == [sha256("two"), sha256("one")]


def test_an_archive_without_an_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"some.tar' is not an image archive"):
        archive_tree(write_tar(tmp_path / "some.tar", {"file": b""}))


def made(folder: Path) -> Path:
    """A file system with every kind of entry that can be made without root."""
    (folder / "etc").mkdir(parents=True)
    (folder / "etc/file").write_text("one")
    (folder / "etc/file").chmod(0o4751)
    os.link(folder / "etc/file", folder / "etc/hard")
    (folder / "link").symlink_to("etc/file")
    os.mkfifo(folder / "fifo", 0o640)
    return folder


def exported(folder: Path) -> filesystem.Tree:
    """The tree of an engine's export of a file system, which also has the engine's own paths."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as written:
        written.add(folder, ".")
        for name in (".dockerenv", "etc/hostname", "dev/console"):
            written.addfile(tarfile.TarInfo(name))
    archive.seek(0)
    with tarfile.open(fileobj=archive, mode="r|") as stream:
        return filesystem.read_archive(stream)


def test_an_export_has_the_same_tree_as_the_folders_of_the_layers(tmp_path: Path) -> None:
    tree, folder = exported(made(tmp_path / "a")), tmp_path / "a"

    assert sorted(tree) == ["etc", "etc/file", "etc/hard", "fifo", "link"]
    assert tree["etc/file"] == Entry("file", 0o4751, (os.getuid(), os.getgid()), sha256("one"), 3)
    assert (tree["link"].kind, tree["link"].content, tree["fifo"].kind) == (LINK, "etc/file", FIFO)
    assert differences(tree, filesystem.read_folders([folder])) == []
    assert tree["etc/hard"].read() == filesystem.read_folders([folder])["etc/hard"].read()


def test_an_image_with_unreadable_layers_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "of another account")

    folder = made(tmp_path / "a")
    with tarfile.open(tmp_path / "export.tar", "w") as written:
        written.add(folder, ".")
    monkeypatch.setattr(rootfs, "layer_folders", lambda _: [folder])
    monkeypatch.setattr(rootfs, "walk", refuse)

    with tarfile.open(tmp_path / "export.tar") as export:
        monkeypatch.setattr(rootfs, "exported", lambda _: nullcontext(export))
        assert filesystem.read_image(cast(Image, SimpleNamespace())) == exported(folder)


def test_owners_that_only_root_can_know_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(tmp_path / "a")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    tree = filesystem.read_folders([folder])

    assert {entry.owner for entry in tree.values()} == {None}
    assert differences(tree, exported(folder)) == []


def test_a_difference_has_the_path_and_both_entries() -> None:
    other = replace(ONE, mode=0o600, owner=(0, 5))

    lines = differences({"same": ONE, "x": ONE, "only": ONE}, {"same": ONE, "x": other})

    digits = sha256("one")[:12]
    assert lines == [
        f"only: -rw-r--r-- 0:0 3 bytes {digits} | missing",
        f"x: -rw-r--r-- 0:0 3 bytes {digits} | -rw------- 0:5 3 bytes {digits}",
    ]


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (Entry(FOLDER, 0o1777, (0, 0)), "drwxrwxrwt 0:0"),
        (Entry(LINK, 0o777, None, "etc/file"), "lrwxrwxrwx etc/file"),
        (Entry(CHARACTERS, 0o640, (7, 8), "1,3"), "crw-r----- 7:8 1,3"),
        (Entry(FILE, 0o644, None, size=3, path="/somewhere"), "-rw-r--r-- 3 bytes"),
    ],
)
def test_each_kind_of_entry_is_formatted_like_ls(entry: Entry, text: str) -> None:
    assert str(entry) == text


@pytest.mark.parametrize(
    "other",
    [
        replace(ONE, mode=0o600),
        replace(ONE, owner=(0, 1)),
        replace(ONE, content=sha256("two")),
        replace(ONE, size=4),
        Entry(FOLDER, 0o644, (0, 0)),
        Entry(LINK, 0o644, (0, 0), sha256("one"), 3),
    ],
)
def test_entries_differ_if_any_part_differs(other: Entry) -> None:
    assert ONE.equals(replace(ONE))
    assert not ONE.equals(other)
    assert not other.equals(ONE)


def test_a_local_file_is_read_only_if_nothing_else_differs(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path, text in zip(paths, ("one", "one", "two")):
        path.write_text(text)
    a, b, c = (replace(ONE, content="", path=str(path)) for path in paths)

    assert a.equals(b)
    assert a.equals(ONE)
    assert ONE.equals(a)
    assert not a.equals(c)
    assert not ONE.equals(c)
    assert replace(a, path="/not/read").equals(replace(a, path="/not/read"))
    assert not a.equals(replace(c, size=4, path="/not/read"))


def test_an_unknown_owner_is_not_compared() -> None:
    assert ONE.equals(replace(ONE, owner=None))
    assert replace(ONE, owner=None).equals(ONE)
