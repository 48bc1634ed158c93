"""What an archive of an image holds: layers lie over one another as an engine lays them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from images import contents, squashfs
from images.contents import Entry
from images.errors import CommandFailed, ImageError

Member = tuple[str, str]  # path, and text; a path that ends in / is a folder, a text that begins with -> or = a link


def layer(*members: Member) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, text in members:
            new = tarfile.TarInfo(path.rstrip("/"))
            new.uid, new.gid, new.mode = 7, 8, 0o640
            if path.endswith("/"):
                new.type, new.mode = tarfile.DIRTYPE, 0o755
            elif text.startswith("->"):
                new.type, new.linkname = tarfile.SYMTYPE, text[2:]
            elif text.startswith("="):
                new.type, new.linkname = tarfile.LNKTYPE, text[1:]
            elif text == "null":
                new.type, new.devmajor, new.devminor = tarfile.CHRTYPE, 1, 3
            new.size = len(text) if new.isreg() else 0
            archive.addfile(new, io.BytesIO(text.encode()))
    return packed.getvalue()


def saved(folder: Path, *layers: bytes) -> Path:
    """An archive as `docker save` writes it."""
    names = [f"{index}/layer.tar" for index in range(len(layers))]
    manifest = json.dumps([{"Config": "c.json", "Layers": names}]).encode()
    return packed(folder / "docker.tar", {**dict(zip(names, layers)), "manifest.json": manifest})


def laid_out(folder: Path, *layers: bytes) -> Path:
    """An archive of the OCI layout, its layers compressed."""
    blobs = [gzip.compress(each) for each in layers]
    manifest = json.dumps({"layers": [{"digest": digest(each)} for each in blobs]}).encode()
    index = json.dumps({"manifests": [{"digest": digest(manifest)}]}).encode()
    files = {f"blobs/{digest(each).replace(':', '/')}": each for each in (*blobs, manifest)}
    return packed(folder / "oci.tar", {"index.json": index, **files})


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def packed(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            new = tarfile.TarInfo(name)
            new.size = len(content)
            archive.addfile(new, io.BytesIO(content))
    return path


def held(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


LAYERS = (
    layer(("a/", ""), ("a/file", "one"), ("a/gone", "x"), ("old/", ""), ("old/deep/", ""), ("old/deep/file", "x")),
    layer(("./a/file", "two"), ("a/.wh.gone", ""), ("a/hard", "=a/file"), ("new", "->a/file"), ("null", "null")),
    layer((".wh.old", ""), ("b/", ""), ("b/spa ced 'q\"\\", "three"), ("anew/", ""), ("anew/x", "1")),
    layer(("anew/", ""), ("anew/.wh..wh..opq", ""), ("anew/y", "2"), ("a/file", "four")),
)
WANTED = {
    "a": Entry("folder", 0o755, (7, 8)),
    "a/file": Entry("file", 0o640, (7, 8), held("four")),
    "a/hard": Entry("file", 0o640, (7, 8), held("two")),
    "new": Entry("link", 0o777, (7, 8), "a/file"),
    "null": Entry("device", 0o640, (7, 8), "c 1,3"),
    "b": Entry("folder", 0o755, (7, 8)),
    "b/spa ced 'q\"\\": Entry("file", 0o640, (7, 8), held("three")),
    "anew": Entry("folder", 0o755, (7, 8)),
    "anew/y": Entry("file", 0o640, (7, 8), held("2")),
}


@pytest.mark.parametrize("pack", [saved, laid_out])
def test_layers_lie_over_one_another_as_an_engine_lays_them(pack: object, tmp_path: Path) -> None:
    assert contents.of_archive(pack(tmp_path, *LAYERS)) == WANTED  # type: ignore[operator]


@pytest.mark.parametrize("pack", [saved, laid_out])
def test_an_engine_knows_the_layers_by_what_they_are_without_compression(pack: object, tmp_path: Path) -> None:
    assert contents.diff_ids(pack(tmp_path, *LAYERS)) == [digest(each) for each in LAYERS]  # type: ignore[operator]


def test_a_link_keeps_what_it_linked_to_when_that_is_replaced_below_it(tmp_path: Path) -> None:
    lower, upper = layer(("a", "one")), layer(("b", "=a"), ("a", "two"))

    tree = contents.of_archive(saved(tmp_path, lower, upper))

    assert [tree[name].holds for name in "ab"] == [held("two"), held("one")]


def test_what_is_not_the_same_is_told_by_path_with_both_sides() -> None:
    one, other = Entry("file", 0o644, (0, 0), "ab"), Entry("file", 0o600, (0, 5), "ab")

    told = contents.differences({"same": one, "x": one, "only": one}, {"same": one, "x": other})

    assert told == ["only: file 0644 0:0 ab | missing", "x: file 0644 0:0 ab | file 0600 0:5 ab"]


def test_another_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"some.tar' is no archive of an image"):
        contents.of_archive(packed(tmp_path / "some.tar", {"file": b""}))


def pack(folder: Path, *layers: bytes, created_s: int = 1) -> tuple[Path, Sequence[str]]:
    target = folder / "image.sqsh"
    target.unlink(missing_ok=True)
    config = {"Env": ["A=1", "PATH=/x:/y"], "Entrypoint": ["/usr/bin/tini", "--"], "Cmd": ["node", "a b"]}
    return target, squashfs.make(saved(folder, *layers), config, created_s, target)


def test_a_squashfs_has_the_tree_and_what_enroot_reads_and_is_the_same_each_time(tmp_path: Path) -> None:
    target, own = pack(tmp_path, *LAYERS)
    first = target.read_bytes()

    tree = squashfs.read(target)

    assert {path: each for path, each in tree.items() if path not in own} == WANTED
    assert sorted(own) == ["etc", "etc/environment", "etc/fstab", "etc/rc"]
    assert tree["etc/environment"].holds == held("A=1\nPATH=/x:/y\n")
    assert pack(tmp_path, *LAYERS)[0].read_bytes() == first


def test_enroots_settings_take_the_place_of_the_images_own(tmp_path: Path) -> None:
    target, own = pack(tmp_path, layer(("etc/", ""), ("etc/fstab", "the image's")))

    assert squashfs.read(target)["etc/fstab"].holds == held("")
    assert sorted(own) == ["etc/environment", "etc/fstab", "etc/rc"]


def test_what_is_started_is_the_entrypoint_with_the_command_or_the_words_given(tmp_path: Path) -> None:
    script = tmp_path / "rc"
    config = {"Entrypoint": ["echo", "a b"], "Cmd": ["node", "c  d"], "WorkingDir": str(tmp_path)}
    script.write_bytes(squashfs.settings(config)["etc/rc"])

    import subprocess

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
