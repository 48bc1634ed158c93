"""A squashfs of an image: its tree, what enroot reads of it, and that it is the same each time."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from images.errors import CommandFailed, ImageError
from images.export import pseudo_files, squashfs
from tests.support.archives import LAYERS, WANTED, held, layer, saved


def pack(folder: Path, *layers: bytes, created_s: int = 1) -> tuple[Path, Sequence[str]]:
    target = folder / "image.sqsh"
    target.unlink(missing_ok=True)
    config = {"Env": ["A=1", "PATH=/x:/y"], "Entrypoint": ["/usr/bin/tini", "--"], "Cmd": ["node", "a b"]}
    return target, squashfs.make(saved(folder, *layers), config, created_s, target)


def test_a_squashfs_has_the_tree_and_what_enroot_reads_and_is_the_same_each_time(tmp_path: Path) -> None:
    target, own = pack(tmp_path, *LAYERS)
    first, second = target.read_bytes(), int(time.time())

    tree = pseudo_files.read(target)

    assert {path: each for path, each in tree.items() if path not in own} == WANTED
    assert sorted(own) == ["etc", "etc/environment", "etc/fstab", "etc/rc"]
    assert tree["etc/environment"].holds == held("A=1\nPATH=/x:/y\n")
    while int(time.time()) == second:  # the clock must tell another second
        time.sleep(0.05)
    assert pack(tmp_path, *LAYERS)[0].read_bytes() == first


def test_enroots_settings_take_the_place_of_the_images_own(tmp_path: Path) -> None:
    target, own = pack(tmp_path, layer(("etc/", ""), ("etc/fstab", "the image's")))

    assert pseudo_files.read(target)["etc/fstab"].holds == held("")
    assert sorted(own) == ["etc/environment", "etc/fstab", "etc/rc"]


def test_what_is_started_is_the_entrypoint_with_the_command_or_the_words_given(tmp_path: Path) -> None:
    script = tmp_path / "rc"
    config = {"Entrypoint": ["echo", "a b"], "Cmd": ["node", "c  d"], "WorkingDir": str(tmp_path)}
    script.write_bytes(squashfs.settings(config)["etc/rc"])

    said = [subprocess.check_output(["sh", str(script), *words], text=True) for words in ([], ["x  y"])]
    assert said == ["a b node c  d\n", "a b x  y\n"]
    assert b'set -- /bin/sh\nexec  "$@"' in squashfs.settings({})["etc/rc"]


def test_a_packer_that_fails_ends_with_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"mksquashfs.*ended with 1(?s:.)*Could not create destination file"):
        squashfs.make(saved(tmp_path, *LAYERS), {}, 1, tmp_path / "no/such/place")


def test_a_missing_packer_is_said_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)

    with pytest.raises(ImageError, match="mksquashfs is not on PATH: `apt-get install squashfs-tools`"):
        squashfs.make(saved(tmp_path, *LAYERS), {}, 1, tmp_path / "x")
