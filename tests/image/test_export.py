"""What is exported of an image holds what the image holds; and what is old goes, nothing else."""

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

from images.builds import prune
from images.catalog.catalog import Catalog
from images.contents import filesystem
from images.contents.tree import differences
from images.engine import base_image
from images.engine.client import choose
from images.errors import DiskTooSmall, ImageError, ToolMissing
from images.export import export
from images.host.process import run
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
    """An image of layers that replace and remove what lies below."""
    folder = tmp_path_factory.mktemp("export")
    (folder / "Dockerfile").write_text(DOCKERFILE)
    run(
        choose().build_argv(["--tag", NAME, "--build-arg", f"BASE={base_image.ensure()}", str(folder)]),
        choose().environment,
    )
    yield daemon.images.get(NAME)
    daemon.images.remove(NAME, force=True)


def test_archives_and_squashfs_hold_one_file_system(image: Image, tmp_path: Path) -> None:
    docker, oci, squash = export.export(NAME, ["docker-archive", "oci-archive", "squashfs"], tmp_path / "files")

    assert sorted((tmp_path / "files").iterdir()) == sorted([docker, oci, squash])
    tree = filesystem.of_archive(docker)
    assert len(tree) > 1000
    assert tree["opt/a/one"].holds != tree["opt/a/hard"].holds
    assert "etc/motd" not in tree
    assert differences(tree, filesystem.of_archive(oci)) == []
    run(["unsquashfs", "-quiet", "-no-progress", "-dest", str(tmp_path / "tree"), str(squash)])
    own = {path: entry for path, entry in tree.items() if not filesystem.is_engines(path)}
    differing = [line.partition(": ")[0] for line in differences(own, filesystem.of_folders([tmp_path / "tree"]))]
    assert differing == ["etc/environment", "etc/fstab", "etc/rc"]


def test_an_oci_archive_goes_where_it_is_taken_and_starts_as_the_image_does(small: Image, tmp_path: Path) -> None:
    (archive,) = export.export(SMALL, ["oci-archive"], tmp_path)

    with tarfile.open(archive) as packed:
        (manifest,) = json.loads(packed.extractfile("index.json").read())["manifests"]  # type: ignore[union-attr]
    told = json.loads(run(["skopeo", "inspect", "--config", f"oci-archive:{archive}:small"]))

    assert manifest["annotations"]["org.opencontainers.image.ref.name"] == "small"
    assert told["config"]["Entrypoint"] == ["/file"]
    assert "SAID=two words" in told["config"]["Env"]


def test_an_archive_comes_back_as_the_image_that_it_was(small: Image, daemon: DockerClient, tmp_path: Path) -> None:
    (archive,) = export.export(SMALL, ["docker-archive"], tmp_path)
    daemon.images.remove(SMALL)

    assert run([choose().client, "load", "--input", str(archive)]).split()[-1] == SMALL
    assert daemon.images.get(SMALL).id == small.id


def test_a_disk_that_is_too_small_is_told_before_anything_is_written(
    small: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = Image({**small.attrs, "Size": 20 * 10**9}, small.client)
    monkeypatch.setattr(export, "local", lambda _: large)

    with pytest.raises(DiskTooSmall, match=r"as squashfs takes about 20\.0 GB in .*, and 0\.1 GB"):
        list(export.export(SMALL, ["squashfs"], tmp_path, free=lambda _: 100_000_000))
    assert list(tmp_path.iterdir()) == []


def test_a_format_that_fails_leaves_those_before_it_and_no_part_of_its_own(
    small: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(ToolMissing, match="mksquashfs"):
        list(export.export(SMALL, ["docker-archive", "squashfs"], tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["verljob-test-export-small.docker.tar"]


@pytest.mark.parametrize(
    ("formats", "told"), [("bake", "bake is no longer written.*squashfs"), ("zip", "no format 'zip'; there are")]
)
def test_a_format_that_there_is_not_is_refused(formats: str, told: str) -> None:
    with pytest.raises(ImageError, match=told):
        export.parse_formats(formats)


@pytest.fixture
def two(daemon: DockerClient, tmp_path: Path) -> Iterator[list[str]]:
    """The IDs of an image with the label and of one without."""
    names = []
    for name, label in (("verl.cpu:0.0.1-old", LABEL), ("verljob-test-export:other", "other")):
        (tmp_path / "Dockerfile").write_text(f"ARG BASE\nFROM ${{BASE}}\nLABEL {label}=1 of={name}\n")
        argv = choose().build_argv(["--tag", name, "--build-arg", f"BASE={base_image.ensure()}", str(tmp_path)])
        run(argv, choose().environment)
        names.append(name)
    yield [str(daemon.images.get(name).id) for name in names]
    for image in daemon.images.list():
        for name in {*image.tags} & {*names, "verljob-test-export:mine"}:
            daemon.images.remove(name)


def test_what_is_old_of_ours_goes_and_nothing_else(daemon: DockerClient, two: list[str]) -> None:
    catalog, (ours, other) = Catalog.read(), two
    daemon.images.get(ours).tag("verljob-test-export:mine")
    assert ours not in prune.find(catalog, LABEL).images  # it has a name that somebody chose

    daemon.images.remove("verljob-test-export:mine")
    old = prune.find(catalog, LABEL)
    assert ours in old.images
    assert "verl.cpu:0.0.1-old" in prune.shown(old)

    said = prune.remove(prune.Old({ours: old.images[ours]}))

    assert said == "Removed 1 images and 0 records of the build cache."
    assert ours not in {image.id for image in daemon.images.list()}
    assert other in {image.id for image in daemon.images.list()}


def test_prune_alone_removes_nothing() -> None:
    shown = subprocess.check_output(
        [sys.executable, "-m", "invoke", "--search-root", str(CHECKOUT), "image.prune"], text=True
    )

    assert shown == "Nothing here is old.\n" or shown.endswith("`invoke image.prune --yes` removes all of these.\n")
