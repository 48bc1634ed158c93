"""Exports have the content of the image; prune removes old images and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker import DockerClient
from docker.models.images import Image

from images.builds import disk, prune
from images.catalog.catalog import Catalog
from images.contents import filesystem
from images.engine import base_image
from images.engine.client import choose
from images.errors import DiskTooSmall, ImageError, ToolMissing
from images.export import export
from images.host.process import run
from tests.support.images.archives import archive_tree, differences
from tests.support.paths import CHECKOUT

NAME = "verljob-test-export:1"
LABEL = "verljob.test-export"
DOCKERFILE = """
ARG BASE
FROM ${BASE}
ENV SAID="two words"
RUN rm -r /usr/share/doc && mkdir /opt/a && echo one > /opt/a/one && ln /opt/a/one /opt/a/hard \\
 && ln -s one '/opt/a/a link' && chown 3:4 /opt/a/one && chmod 2751 /opt/a
RUN echo two > /opt/a/one && rm /etc/motd && rm -r /var/cache && mkdir /var/cache
ENTRYPOINT ["/bin/echo"]
CMD ["a  b"]
"""


SMALL = "verljob-test-export:small"


@pytest.fixture(scope="module")
def small(daemon: DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """An image of one file."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "file").write_text("one")
    (folder / "Dockerfile").write_text('FROM scratch\nCOPY file /\nENV SAID="two words"\nENTRYPOINT ["/file"]\n')
    run(choose().build_argv(["--tag", SMALL, str(folder)]), choose().environment)
    yield daemon.images.get(SMALL)
    daemon.images.remove(SMALL, force=True)


@pytest.fixture(scope="module")
def image(daemon: DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """An image with layers that replace and remove files of those below."""
    folder = tmp_path_factory.mktemp("export")
    (folder / "Dockerfile").write_text(DOCKERFILE)
    run(
        choose().build_argv(["--tag", NAME, "--build-arg", f"BASE={base_image.ensure()}", str(folder)]),
        choose().environment,
    )
    yield daemon.images.get(NAME)
    daemon.images.remove(NAME, force=True)


def test_archives_and_squashfs_have_one_file_system(image: Image, tmp_path: Path) -> None:
    files = list(export.export(NAME, ["docker-archive", "oci-archive", "squashfs"], tmp_path / "files"))

    assert sorted((tmp_path / "files").iterdir()) == sorted(files)
    docker, oci, squash, digest = files
    assert digest.name == f"{squash.name}.sha256"
    tree = archive_tree(docker)
    assert len(tree) > 1000
    assert tree["opt/a/one"].content != tree["opt/a/hard"].content
    assert "etc/motd" not in tree
    assert differences(tree, archive_tree(oci)) == []
    run(["unsquashfs", "-quiet", "-no-progress", "-dest", str(tmp_path / "tree"), str(squash)])
    own = {path: entry for path, entry in tree.items() if not filesystem.is_engine_path(path)}
    differing = [line.partition(": ")[0] for line in differences(own, filesystem.read_folders([tmp_path / "tree"]))]
    assert differing == ["etc/environment", "etc/fstab", "etc/rc"]


def test_an_oci_archive_has_the_configuration_of_the_image(small: Image, tmp_path: Path) -> None:
    (archive,) = export.export(SMALL, ["oci-archive"], tmp_path)

    with tarfile.open(archive) as packed:
        (manifest,) = json.loads(packed.extractfile("index.json").read())["manifests"]  # type: ignore[union-attr]
    inspected = json.loads(run(["skopeo", "inspect", "--config", f"oci-archive:{archive}:small"]))

    assert manifest["annotations"]["org.opencontainers.image.ref.name"] == "small"
    assert inspected["config"]["Entrypoint"] == ["/file"]
    assert "SAID=two words" in inspected["config"]["Env"]


def test_a_loaded_archive_is_the_same_image(small: Image, daemon: DockerClient, tmp_path: Path) -> None:
    (archive,) = export.export(SMALL, ["docker-archive"], tmp_path)
    daemon.images.remove(SMALL)

    assert run([choose().client, "load", "--input", str(archive)]).split()[-1] == SMALL
    assert daemon.images.get(SMALL).id == small.id


def test_a_full_disk_is_reported_before_anything_is_written(
    small: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = Image({**small.attrs, "Size": 20 * 10**9}, small.client)
    monkeypatch.setattr(export, "local", lambda _: large)
    monkeypatch.setattr(disk, "free_bytes", lambda _: 100_000_000)

    with pytest.raises(DiskTooSmall, match=r"as squashfs takes about 20\.0 GB in .*, and 0\.1 GB"):
        list(export.export(SMALL, ["squashfs"], tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_failed_format_keeps_earlier_files_and_leaves_no_partial_file(
    small: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(ToolMissing, match="mksquashfs"):
        list(export.export(SMALL, ["docker-archive", "squashfs"], tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["verljob-test-export-small.docker.tar"]


@pytest.mark.parametrize(
    ("formats", "message"),
    [("bake", "bake is no longer written.*squashfs"), ("zip", "unknown format 'zip': pass one of")],
)
def test_an_unknown_format_is_refused(formats: str, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        export.parse_formats(formats)


@pytest.fixture
def two(daemon: DockerClient, tmp_path: Path) -> Iterator[list[str]]:
    """The IDs of an image with the label and of one without it."""
    names = []
    for name, label in (("verl.cpu:0.0.1-old", LABEL), ("verljob-test-export:other", "other")):
        (tmp_path / "Dockerfile").write_text(f"ARG BASE\nFROM ${{BASE}}\nLABEL {label}=1 of={name}\n")
        argv = choose().build_argv(["--tag", name, "--build-arg", f"BASE={base_image.ensure()}", str(tmp_path)])
        run(argv, choose().environment)
        names.append(name)
    yield [str(daemon.images.get(name).id) for name in names]
    for name in (*names, "verljob-test-export:mine"):
        if daemon.api.images(name=name):
            daemon.images.remove(name)


def test_prune_removes_our_old_images_and_nothing_else(daemon: DockerClient, two: list[str]) -> None:
    catalog, (ours, other) = Catalog.read(), two
    daemon.images.get(ours).tag("verljob-test-export:mine")
    assert ours not in prune.find(catalog, LABEL).images  # it has a chosen name

    daemon.images.remove("verljob-test-export:mine")
    old = prune.find(catalog, LABEL)
    assert ours in old.images
    assert "verl.cpu:0.0.1-old" in prune.table(old)

    summary = prune.remove(prune.StaleItems({ours: old.images[ours]}))

    assert summary == "Removed 1 images and 0 records of the build cache."
    left = {image["Id"] for image in daemon.api.images()}
    assert ours not in left
    assert other in left


def test_prune_without_yes_removes_nothing() -> None:
    shown = subprocess.check_output(
        [sys.executable, "-m", "invoke", "--search-root", str(CHECKOUT), "image.prune"], text=True
    )

    assert shown == "No old images or cache records.\n" or shown.endswith(
        "`invoke image.prune --yes` removes all of these.\n"
    )
