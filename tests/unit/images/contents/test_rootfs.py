"""Reading files of an image without running it: layers are merged as overlayfs does, an archive has the same files."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from docker.models.images import Image

from images.contents import rootfs


def layer(folder: Path, *paths: str) -> Path:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"{folder.name} {path}")
    folder.mkdir(exist_ok=True)
    return folder


def whiteout(path: Path) -> None:
    """Make what overlay2 leaves of a removed name; needs root."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.mknod(path, 0o020000, os.makedev(0, 0))
    except PermissionError:
        pytest.skip("making a device node needs root")


def read(*folders: Path) -> dict[str, str]:
    return {path: content.decode() for path, content in rootfs.read_folders(folders, lambda _: True).items()}


def test_a_file_of_an_upper_layer_replaces_the_one_below(tmp_path: Path) -> None:
    top, bottom = layer(tmp_path / "top", "etc/a"), layer(tmp_path / "bottom", "etc/a", "etc/b")

    assert read(top, bottom) == {"etc/a": "top etc/a", "etc/b": "bottom etc/b"}


def test_a_removed_path_is_gone_until_a_layer_above_adds_it_again(tmp_path: Path) -> None:
    top, middle = layer(tmp_path / "top", "lib/again/file"), tmp_path / "middle"
    bottom = layer(tmp_path / "bottom", "lib/gone", "lib/folder/file", "lib/again/old", "lib/stays")
    for name in ("gone", "folder", "again"):
        whiteout(middle / "lib" / name)

    assert read(top, middle, bottom) == {"lib/again/file": "top lib/again/file", "lib/stays": "bottom lib/stays"}


def test_an_opaque_folder_hides_the_one_below(tmp_path: Path) -> None:
    top, bottom = layer(tmp_path / "top", "opt/x/new"), layer(tmp_path / "bottom", "opt/x/old", "opt/y")
    try:
        os.setxattr(top / "opt/x", "user.overlay.opaque", b"y")
    except OSError as refused:
        pytest.skip(f"this file system has no extended attributes: {refused}")

    assert read(top, bottom) == {"opt/x/new": "top opt/x/new", "opt/y": "bottom opt/y"}


def test_a_file_hides_a_folder_and_a_folder_a_file(tmp_path: Path) -> None:
    top, bottom = layer(tmp_path / "top", "a", "b/file"), layer(tmp_path / "bottom", "a/file", "b")

    assert read(top, bottom) == {"a": "top a", "b/file": "top b/file"}


def test_links_are_not_followed(tmp_path: Path) -> None:
    only = layer(tmp_path / "only", "usr/lib/file")
    (only / "lib").symlink_to("usr/lib")

    assert list(read(only)) == ["usr/lib/file"]


def test_only_matching_files_are_read_from_an_archive_and_hard_links_are_resolved(tmp_path: Path) -> None:
    root = layer(tmp_path / "root", "pkgs/x.dist-info/METADATA", "big")
    (root / "site").mkdir()
    os.link(root / "pkgs/x.dist-info/METADATA", root / "site/METADATA")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(root, arcname=".")
    stream = io.BufferedReader(rootfs._Stream(iter([packed.getvalue()[:1000], packed.getvalue()[1000:]])))

    with tarfile.open(fileobj=stream, mode="r|") as archive:
        found = rootfs.read_archive(archive, lambda path: path.endswith("METADATA"))

    assert {path: content.decode() for path, content in found.items()} == {
        "pkgs/x.dist-info/METADATA": "root pkgs/x.dist-info/METADATA",
        "site/METADATA": "root pkgs/x.dist-info/METADATA",
    }


@pytest.mark.parametrize(
    "driver",
    [
        None,  # the containerd store
        {"Name": "vfs", "Data": {}},
        {"Name": "overlay2", "Data": {"UpperDir": "/no/such/place"}},
    ],
)
def test_layers_in_another_storage_or_unreadable_are_not_used(driver: object) -> None:
    assert rootfs.layer_folders(Image(attrs={"GraphDriver": driver})) == []


def test_the_layers_of_overlay2_are_returned_top_first(tmp_path: Path) -> None:
    folders = [layer(tmp_path / name) for name in ("top", "middle", "bottom")]
    data = {"UpperDir": str(folders[0]), "LowerDir": f"{folders[1]}:{folders[2]}"}

    assert rootfs.layer_folders(Image(attrs={"GraphDriver": {"Name": "overlay2", "Data": data}})) == folders
