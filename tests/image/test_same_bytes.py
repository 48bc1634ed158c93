"""Two builds of the same inputs give one digest, three engines one file system, and differences are named."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

import pytest
from docker import DockerClient
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from images.catalog.catalog import Catalog
from images.contents.filesystem import Tree
from images.context import context
from images.context.plan import build_labels, label_flags
from images.context.render import TEMPLATES
from images.engine import base_image, buildah
from images.engine.client import choose
from images.engine.daemon import get
from images.host.process import Commands, run
from tests.support.images.archives import archive_tree, differences

VARIANT = Catalog.read().find("cpu")
NAME = "verljob-test-bytes"
# The macros and every kind of mount of our templates, without the downloads.
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


class Builds:
    """A folder to build in, and the engine that gets the images."""

    def __init__(self, folder: Path, daemon: DockerClient) -> None:
        self.folder, self.daemon, self.base = folder, daemon, base_image.ensure()
        self.store = Path(mkdtemp(prefix="verljob"))  # podman needs a short path

    def stage(self, name: str, steps: str = "") -> list[str]:
        """Stage the build, with added steps, and return the arguments of the engine."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(context, "STAGED", self.folder / name)
            staged = context.stage(VARIANT, self.base, {})
        folder = staged.folder
        loader = Environment(loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined)  # noqa: S701
        (folder / "Dockerfile").write_text(loader.from_string(TEMPLATE).render(variant=VARIANT) + f"\n{steps}")
        secret = self.folder / "pip"
        secret.write_text("[global]\n")
        return [
            *label_flags(build_labels(self.base, get(self.base), staged.manifest["toolkit"])),
            "--secret",
            f"id=pip,src={secret}",
            str(folder),
        ]

    def by_buildah(self, name: str, arguments: list[str]) -> str:
        """Build, and return the ID."""
        watch = partial(Commands().watch, env={}, on_line=lambda _: None)
        buildah.find(self.store).build(arguments, self.base, get(self.base).id, [f"{NAME}:{name}"], watch)
        return str(self.daemon.images.get(f"{NAME}:{name}").id)

    def tree(self, name: str) -> Tree:
        """The file tree of an image of the engine."""
        archive = self.folder / "saved.tar"
        with archive.open("wb") as file:
            for chunk in self.daemon.images.get(f"{NAME}:{name}").save():
                file.write(chunk)
        return archive_tree(archive)


@pytest.fixture(scope="module")
def builds(daemon: DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builds]:
    builds = Builds(tmp_path_factory.mktemp("bytes"), daemon)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "1700000000")
        yield builds
    run([*buildah.storage_command(builds.store), "rmi", "--all", "--force"])
    shutil.rmtree(builds.store)
    for image in daemon.images.list(NAME):
        daemon.images.remove(str(image.id), force=True)


@pytest.fixture(scope="module")
def first(builds: Builds) -> tuple[str, Tree]:
    """The ID and the file tree of a build."""
    return builds.by_buildah("first", builds.stage("first")), builds.tree("first")


def test_a_build_by_another_user_in_another_folder_with_other_times_is_the_same_image(
    builds: Builds, first: tuple[str, Tree], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("USER", "another")
    monkeypatch.setenv("HOME", str(tmp_path / "another"))
    before = os.umask(0o077)
    try:
        arguments = builds.stage("elsewhere")
        for path in Path(arguments[-1]).rglob("*"):
            os.utime(path, (1_000_000_000, 1_000_000_000))
        again = builds.by_buildah("elsewhere", arguments)
    finally:
        os.umask(before)

    assert again == first[0], differences(first[1], builds.tree("elsewhere"))


def test_a_difference_is_named_by_its_path(builds: Builds, first: tuple[str, Tree]) -> None:
    other = builds.by_buildah("dated", builds.stage("dated", "RUN date +%s%N > /opt/made/when\n"))

    found = differences(first[1], builds.tree("dated"))

    assert other != first[0]
    assert [line.partition(": ")[0] for line in found] == ["opt/made/when"]


def test_docker_podman_and_buildah_make_one_file_system(builds: Builds, first: tuple[str, Tree]) -> None:
    arguments, engine = builds.stage("one"), choose()
    flags = ["--no-cache", "--tag", f"{NAME}:docker", "--build-arg", f"BASE={builds.base}"]
    run(engine.build_argv([*flags, *arguments]), engine.environment)
    podman = ["podman", *buildah.storage_command(builds.store)[1:]]
    flags = ["--isolation", "chroot", "--no-hosts", "--no-cache", "--build-arg", f"BASE=docker-daemon:{builds.base}"]
    run([*podman, "build", *flags, "--tag", f"{NAME}:podman", *arguments])
    run([*podman, "push", f"{NAME}:podman", f"docker-daemon:{NAME}:podman"])

    assert "opt/verljob/entrypoint.sh" in first[1]
    assert differences(builds.tree("docker"), first[1]) == []
    assert differences(builds.tree("podman"), first[1]) == []
