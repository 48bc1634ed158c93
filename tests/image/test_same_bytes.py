"""Two builds of the same inputs give one digest, three engines one file system, and what differs is named."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest
from docker import DockerClient
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from images.catalog.catalog import Catalog
from images.contents import filesystem
from images.contents.tree import Tree, differences
from images.context import context, labels
from images.context.render import TEMPLATES
from images.engine import base_image, buildah
from images.engine.client import choose
from images.engine.daemon import get
from images.host.process import run

SPEC = Catalog.read().find("cpu")
NAME = "verljob-test-bytes"
# The templates' own macros, and every kind of mount that they use, without the downloads.
TEMPLATE = r"""{% import "macros.j2" as m -%}
{{ m.banner(variant) }}
ARG BASE={{ variant.base }}
FROM ${BASE}
RUN --mount=type=secret,id=pip --mount=type=cache,target=/root/.cache/pip \
    --mount=type=bind,source=steps,target=/steps --mount=type=bind,source=lock.txt,target=/lock.txt \
    export {{ m.epoch() }} \
 && test -s /run/secrets/pip && touch /root/.cache/pip/kept \
 && mkdir -p /opt/made/empty && cp /steps/guard.py /opt/made && ln -s guard.py /opt/made/link \
 && ln /opt/made/guard.py /opt/made/hard && chmod 0751 /opt/made/empty && rm -r /usr/share/doc /etc/motd
{{ m.labels(variant, "0") }}

{{ m.toolkit(variant) }}
"""


class Ground:
    """A folder to build in, and the engine that gets what is built."""

    def __init__(self, folder: Path, daemon: DockerClient) -> None:
        self.folder, self.daemon, self.base = folder, daemon, base_image.ensure()
        self.store = Path(mkdtemp(prefix="verljob"))  # podman wants its path short

    def stage(self, name: str, more: str = "") -> list[str]:
        """Stage the build in a folder, and return what its engine is told; ``more`` are steps that follow."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(context, "STAGED", self.folder / name)
            folder = context.stage(SPEC, self.base, [])
        loader = Environment(loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined)  # noqa: S701
        (folder / "Dockerfile").write_text(loader.from_string(TEMPLATE).render(variant=SPEC) + f"\n{more}")
        secret = self.folder / "pip"
        secret.write_text("[global]\n")
        return [
            *labels.flags(labels.build_labels(self.base, get(self.base), folder)),
            "--secret",
            f"id=pip,src={secret}",
            str(folder),
        ]

    def by_buildah(self, name: str, arguments: list[str]) -> str:
        """Build, and return the ID."""
        buildah.build(arguments, self.base, [f"{NAME}:{name}"], store=self.store)
        return str(self.daemon.images.get(f"{NAME}:{name}").id)

    def tree(self, name: str) -> Tree:
        """What is in an image of the engine."""
        archive = self.folder / "saved.tar"
        with archive.open("wb") as file:
            for chunk in self.daemon.images.get(f"{NAME}:{name}").save():
                file.write(chunk)
        return filesystem.of_archive(archive)


@pytest.fixture(scope="module")
def ground(daemon: DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    ground = Ground(tmp_path_factory.mktemp("bytes"), daemon)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "1700000000")
        yield ground
    run([*buildah.command(ground.store), "rmi", "--all", "--force"])
    shutil.rmtree(ground.store)
    for image in daemon.images.list(NAME):
        daemon.images.remove(str(image.id), force=True)


@pytest.fixture(scope="module")
def first(ground: Ground) -> tuple[str, Tree]:
    """A build's ID, and what is in it."""
    return ground.by_buildah("first", ground.stage("first")), ground.tree("first")


def test_a_build_in_another_folder_by_somebody_with_another_umask_on_another_day_is_the_same_image(
    ground: Ground, first: tuple[str, Tree], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("USER", "somebody")
    monkeypatch.setenv("HOME", str(tmp_path / "somebody"))
    before = os.umask(0o077)
    try:
        arguments = ground.stage("elsewhere")
        for path in Path(arguments[-1]).rglob("*"):
            os.utime(path, (1_000_000_000, 1_000_000_000))
        again = ground.by_buildah("elsewhere", arguments)
    finally:
        os.umask(before)

    assert again == first[0], differences(first[1], ground.tree("elsewhere"))


def test_what_is_not_the_same_is_named_by_its_path(ground: Ground, first: tuple[str, Tree]) -> None:
    other = ground.by_buildah("dated", ground.stage("dated", "RUN date +%s%N > /opt/made/when\n"))

    found = differences(first[1], ground.tree("dated"))

    assert other != first[0]
    assert [line.partition(": ")[0] for line in found] == ["opt/made/when"]


def test_docker_podman_and_buildah_make_one_file_system_of_one_rendered_file(
    ground: Ground, first: tuple[str, Tree]
) -> None:
    arguments, engine = ground.stage("one"), choose()
    flags = ["--no-cache", "--tag", f"{NAME}:docker", "--build-arg", f"BASE={ground.base}"]
    run(engine.build_argv([*flags, *arguments]), engine.environment)
    podman = ["podman", *buildah.command(ground.store)[1:]]
    flags = ["--isolation", "chroot", "--no-hosts", "--no-cache", "--build-arg", f"BASE=docker-daemon:{ground.base}"]
    run([*podman, "build", *flags, "--tag", f"{NAME}:podman", *arguments])
    run([*podman, "push", f"{NAME}:podman", f"docker-daemon:{NAME}:podman"])

    assert "opt/verljob/entrypoint.sh" in first[1]
    assert differences(ground.tree("docker"), first[1]) == []
    assert differences(ground.tree("podman"), first[1]) == []
