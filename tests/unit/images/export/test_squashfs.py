"""A squashfs has the tree of the engine's export and enroot's files; the same image gives the same bytes."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from docker.models.images import Image

from images.contents import filesystem, rootfs
from images.errors import CommandFailed, ImageError
from images.export import squashfs
from tests.support.images.archives import differences, layer

CONFIG = {"Env": ["A=1", "PATH=/x:/y"], "Entrypoint": ["/usr/bin/tini", "--"], "Cmd": ["node", "a b"]}
CERTIFICATE = "/usr/share/ca-certificates/mozilla/NetLock_Arany_=Class_Gold=_F\u0151tan\u00fas\u00edtv\u00e1ny.crt"
FILES = layer(
    (".dockerenv", ""),
    ("dev/", ""),
    ("dev/console", ""),
    ("etc/", ""),
    ("etc/fstab", "the image's"),
    ("opt/", ""),
    ("opt/one", "one"),
    ("opt/hard", "=opt/one"),
    ("opt/certificate", f"->{CERTIFICATE}"),
    (f"opt/{'long' * 30}", f"->/{'far' * 40}"),
    ("opt/null", "null"),
)


@pytest.fixture
def image(monkeypatch: pytest.MonkeyPatch) -> Image:
    @contextmanager
    def exported(_: Image) -> Iterator[tarfile.TarFile]:
        with tarfile.open(fileobj=io.BytesIO(FILES), mode="r|") as archive:
            yield archive

    monkeypatch.setattr(rootfs, "exported", exported)
    return Image({"Id": "sha256:1", "Created": "2026-11-24T01:02:03.5Z", "Config": CONFIG})


def unpacked(path: Path, folder: Path) -> Path:
    subprocess.run(["unsquashfs", "-quiet", "-no-progress", "-dest", folder, path], check=True, capture_output=True)
    return folder


def test_it_has_the_tree_of_the_export_and_the_files_that_enroot_reads(image: Image, tmp_path: Path) -> None:
    squashfs.make(image, tmp_path / "i.sqsh")

    folder = unpacked(tmp_path / "i.sqsh", tmp_path / "tree")
    with tarfile.open(fileobj=io.BytesIO(FILES)) as archive:
        expected = filesystem.read_archive(archive)
    differing = [line.partition(": ")[0] for line in differences(expected, filesystem.read_folders([folder]))]
    assert differing == ["etc/environment", "etc/fstab", "etc/rc"]
    assert (folder / "etc/environment").read_text() == "A=1\nPATH=/x:/y\n"
    assert (folder / "etc/fstab").read_text() == ""
    assert list((folder / "dev").iterdir()) == []
    assert not (folder / ".dockerenv").exists()


def test_a_links_target_keeps_its_leading_slash(image: Image, tmp_path: Path) -> None:
    """mksquashfs 4.5.1 drops it from targets that are long or not ASCII if the tar has PAX headers."""
    squashfs.make(image, tmp_path / "i.sqsh")

    folder = unpacked(tmp_path / "i.sqsh", tmp_path / "tree")
    assert str((folder / "opt/certificate").readlink()) == CERTIFICATE
    assert str((folder / f"opt/{'long' * 30}").readlink()).startswith("/far")


def test_the_same_image_gives_the_same_bytes(image: Image, tmp_path: Path) -> None:
    squashfs.make(image, tmp_path / "one.sqsh")
    second = int(time.time())
    while int(time.time()) == second:  # until the clock shows another second
        time.sleep(0.05)
    squashfs.make(image, tmp_path / "two.sqsh")

    assert (tmp_path / "one.sqsh").read_bytes() == (tmp_path / "two.sqsh").read_bytes()


def test_the_start_script_runs_the_entrypoint_with_the_command_or_given_arguments(tmp_path: Path) -> None:
    script = tmp_path / "rc"
    config = {"Entrypoint": ["echo", "a b"], "Cmd": ["node", "c  d"], "WorkingDir": str(tmp_path)}
    script.write_bytes(squashfs.settings(config)["etc/rc"])

    output = [subprocess.check_output(["sh", str(script), *args], text=True) for args in ([], ["x  y"])]
    assert output == ["a b node c  d\n", "a b x  y\n"]
    assert b'set -- /bin/sh\nexec  "$@"' in squashfs.settings({})["etc/rc"]


def test_the_start_script_sources_the_file_by_which_pyxis_starts_a_container(tmp_path: Path) -> None:
    (tmp_path / "rc.local").write_text('exec "$@"\n')
    script = squashfs.settings(CONFIG)["etc/rc"].decode().replace("/etc/rc.local", str(tmp_path / "rc.local"))

    assert subprocess.check_output(["sh", "-c", script, "rc", "echo", "x  y"], text=True) == "x  y\n"


def test_a_failed_mksquashfs_is_reported_with_its_output(image: Image, tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"mksquashfs.*exited with 1(?s:.)*Could not create destination file"):
        squashfs.make(image, tmp_path / "no/such/place")


def test_a_missing_mksquashfs_is_reported_with_its_package(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)

    with pytest.raises(ImageError, match="mksquashfs is not on PATH: `apt-get install squashfs-tools`"):
        squashfs.make(image, tmp_path / "x")
