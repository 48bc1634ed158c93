"""What an image holds, out of its archive, the engine's export, or the folders of its layers: one tree each time."""

from __future__ import annotations

import io
import os
import tarfile
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from docker.models.images import Image

from images.contents import filesystem, layers, rootfs
from images.contents.tree import FIFO, LINK, Entry, differences
from images.errors import ImageError
from tests.support.images.archives import LAYERS, WANTED, digest, held, laid_out, layer, packed, saved


@pytest.mark.parametrize("pack", [saved, laid_out])
def test_layers_lie_over_one_another_as_an_engine_lays_them(pack: object, tmp_path: Path) -> None:
    assert filesystem.of_archive(pack(tmp_path, *LAYERS)) == WANTED  # type: ignore[operator]


@pytest.mark.parametrize("pack", [saved, laid_out])
def test_an_engine_knows_the_layers_by_what_they_are_without_compression(pack: object, tmp_path: Path) -> None:
    assert layers.diff_ids(pack(tmp_path, *LAYERS)) == [digest(each) for each in LAYERS]  # type: ignore[operator]


def test_a_link_keeps_what_it_linked_to_when_that_is_replaced_below_it(tmp_path: Path) -> None:
    lower, upper = layer(("a", "one")), layer(("b", "=a"), ("a", "two"))

    tree = filesystem.of_archive(saved(tmp_path, lower, upper))

    assert [tree[name].holds for name in "ab"] == [held("two"), held("one")]


def test_another_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"some.tar' is no archive of an image"):
        filesystem.of_archive(packed(tmp_path / "some.tar", {"file": b""}))


def made(folder: Path) -> Path:
    """A file system of every kind of entry that is made without root."""
    (folder / "etc").mkdir(parents=True)
    (folder / "etc/file").write_text("one")
    (folder / "etc/file").chmod(0o4751)
    os.link(folder / "etc/file", folder / "etc/hard")
    (folder / "link").symlink_to("etc/file")
    os.mkfifo(folder / "fifo", 0o640)
    return folder


def exported(folder: Path) -> filesystem.Tree:
    """What an engine's export of a file system comes to, with what the engine adds to it."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as written:
        written.add(folder, ".")
        for name in (".dockerenv", "etc/hostname", "dev/console"):
            written.addfile(tarfile.TarInfo(name))
    archive.seek(0)
    with tarfile.open(fileobj=archive, mode="r|") as stream:
        return filesystem.of_export(stream)


def test_an_export_tells_the_same_as_the_folders_of_the_layers(tmp_path: Path) -> None:
    tree, folder = exported(made(tmp_path / "a")), tmp_path / "a"

    assert sorted(tree) == ["etc", "etc/file", "etc/hard", "fifo", "link"]
    assert tree["etc/file"] == Entry("file", 0o4751, (os.getuid(), os.getgid()), held("one"), 3)
    assert (tree["link"].kind, tree["link"].holds, tree["fifo"].kind) == (LINK, "etc/file", FIFO)
    assert differences(tree, filesystem.of_folders([folder])) == []
    assert tree["etc/hard"].content() == filesystem.of_folders([folder])["etc/hard"].content()


def test_an_image_whose_layers_this_account_may_not_read_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "of another account")

    folder = made(tmp_path / "a")
    with tarfile.open(tmp_path / "export.tar", "w") as written:
        written.add(folder, ".")
    monkeypatch.setattr(rootfs, "layers", lambda _: [folder])
    monkeypatch.setattr(rootfs, "everything", refuse)

    with tarfile.open(tmp_path / "export.tar") as export:
        monkeypatch.setattr(rootfs, "exported", lambda _: nullcontext(export))
        assert filesystem.of_image(cast(Image, SimpleNamespace())) == exported(folder)


def test_what_is_no_roots_to_know_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(tmp_path / "a")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    tree = filesystem.of_folders([folder])

    assert {entry.owner for entry in tree.values()} == {None}
    assert differences(tree, exported(folder)) == []
