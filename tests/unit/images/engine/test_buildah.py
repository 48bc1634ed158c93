"""Builds by buildah: the time of the image, the storage, and the copy to the engine."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path

import pytest

from images.engine import buildah
from images.errors import ImageError
from images.host.process import Commands

ID = "ab" * 32
BUILDAH = """#!/bin/sh
echo "$*" >> "$LOG"
case " $* " in
    *" overlay images --quiet "*) [ -z "$NO_OVERLAY" ] || { echo "overlay is not supported" >&2; exit 1; } ;;
    *" vfs images --quiet "*) [ -z "$NO_VFS" ] || { echo "no space" >&2; exit 1; } ;;
esac
case " $* " in
    *" --no-trunc "*) [ -z "$HAS_BASE" ] || echo "sha256:$HAS_BASE" ;;
    *" version "*) echo '{"version": "1.28.2", "goVersion": "go1.19"}' ;;
    *" bud "*) echo "umask $(umask)" >> "$LOG" ;;
esac
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The calls of a fake buildah, one line each."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/buildah").write_text(BUILDAH)
    (tmp_path / "bin/buildah").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "123")
    return tmp_path / "log"


def build(arguments: list[str], tags: list[str], store: Path) -> None:
    watch = partial(Commands().watch, env={}, on_line=lambda _: None)
    buildah.find(store).build(arguments, "base:1", f"sha256:{ID}", tags, watch)


def calls(log: Path, verb: str) -> list[list[str]]:
    words = [line.split() for line in log.read_text().splitlines()]
    return [each[each.index(verb) :] for each in words if verb in each]


def test_the_image_gets_the_time_no_cached_layer_and_is_copied_to_the_engine(log: Path, tmp_path: Path) -> None:
    build(["--label", "a=1", "context"], ["verl.cpu:1", "verl.cpu:latest"], tmp_path)

    ((*built, a, b, c),) = calls(log, "bud")
    assert built[built.index("--timestamp") + 1] == "123"
    assert {"--layers", "--no-cache", "--no-hosts"} <= set(built)
    assert f"BASE={ID}" in built
    assert [a, b, c] == ["--label", "a=1", "context"]
    own = "localhost/verljob/verl.cpu:1"
    assert calls(log, "push") == [["push", own, f"docker-daemon:verl.cpu:{tag}"] for tag in ("1", "latest")]
    assert calls(log, "rmi") == [["rmi", own]]


def test_the_steps_of_a_build_do_not_inherit_the_umask(log: Path, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        build(["context"], ["verl.cpu:1"], tmp_path)
    finally:
        os.umask(before)

    assert "umask 0022" in log.read_text()


@pytest.mark.parametrize(("has", "pulls"), [("", [["pull", "docker-daemon:base:1"]]), (ID, [])])
def test_the_base_is_copied_from_the_engine_only_if_buildah_does_not_have_it(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has: str, pulls: list[list[str]]
) -> None:
    monkeypatch.setenv("HAS_BASE", has)

    build(["context"], ["verl.cpu:1"], tmp_path)

    assert calls(log, "pull") == pulls


def test_vfs_replaces_overlay_and_without_both_their_errors_are_reported(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert buildah.storage_command(tmp_path)[-1] == "overlay"
    monkeypatch.setenv("NO_OVERLAY", "1")
    assert buildah.storage_command(tmp_path)[-1] == "vfs"
    monkeypatch.setenv("NO_VFS", "1")
    with pytest.raises(ImageError, match=r"overlay: overlay is not supported; vfs: no space"):
        buildah.storage_command(tmp_path)


def test_the_time_is_source_date_epoch_else_that_of_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "7")
    assert buildah.time_s() == 7
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(ImageError, match="'yesterday' is not a number: set it to seconds since 1970"):
        buildah.time_s()

    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    monkeypatch.setattr(buildah, "ROOT", tmp_path)
    with pytest.raises(ImageError, match="no commit to take the image's time from: set SOURCE_DATE_EPOCH"):
        buildah.time_s()

    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    dated = {**os.environ, "GIT_COMMITTER_DATE": "1600000000 +0000"}
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", "x"], check=True, env=dated)
    assert buildah.time_s() == 1_600_000_000


def test_a_missing_buildah_is_reported_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ImageError, match="buildah is not on PATH: `apt-get install buildah`"):
        buildah.version()


def test_the_version_is_read_from_buildah(log: Path) -> None:
    assert buildah.version() == "1.28.2"
