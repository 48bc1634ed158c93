"""Building by buildah: with which time, in which storage, and what the engine gets of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from images.engine import buildah
from images.errors import ImageError

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
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What buildah was asked, a line a call; the engine has a base of ID."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/buildah").write_text(BUILDAH)
    (tmp_path / "bin/buildah").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "123")
    monkeypatch.setattr(buildah, "get", lambda _: SimpleNamespace(id=f"sha256:{ID}"))
    return tmp_path / "log"


def calls(said: Path, verb: str) -> list[list[str]]:
    words = [line.split() for line in said.read_text().splitlines()]
    return [each[each.index(verb) :] for each in words if verb in each]


def test_the_image_gets_the_time_and_no_layer_of_another_build_and_the_engine_gets_the_image(
    said: Path, tmp_path: Path
) -> None:
    buildah.build(["--label", "a=1", "context"], "base:1", ["verl.cpu:1", "verl.cpu:latest"], store=tmp_path)

    ((*built, a, b, c),) = calls(said, "bud")
    assert built[built.index("--timestamp") + 1] == "123"
    assert {"--layers", "--no-cache", "--no-hosts"} <= set(built)
    assert f"BASE={ID}" in built
    assert [a, b, c] == ["--label", "a=1", "context"]
    own = "localhost/verljob/verl.cpu:1"
    assert calls(said, "push") == [["push", own, f"docker-daemon:verl.cpu:{tag}"] for tag in ("1", "latest")]
    assert calls(said, "rmi") == [["rmi", own]]


def test_the_steps_of_a_build_do_not_inherit_the_umask(said: Path, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        buildah.build(["context"], "base:1", ["verl.cpu:1"], store=tmp_path)
    finally:
        os.umask(before)

    assert "umask 0022" in said.read_text()


@pytest.mark.parametrize(("has", "pulls"), [("", [["pull", "docker-daemon:base:1"]]), (ID, [])])
def test_the_base_comes_from_the_engine_where_buildah_lacks_it(
    said: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has: str, pulls: list[list[str]]
) -> None:
    monkeypatch.setenv("HAS_BASE", has)

    buildah.build(["context"], "base:1", ["verl.cpu:1"], store=tmp_path)

    assert calls(said, "pull") == pulls


def test_where_there_is_no_overlay_vfs_does_and_without_both_their_words_are_told(
    said: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert buildah.command(tmp_path)[-1] == "overlay"
    monkeypatch.setenv("NO_OVERLAY", "1")
    assert buildah.command(tmp_path)[-1] == "vfs"
    monkeypatch.setenv("NO_VFS", "1")
    with pytest.raises(ImageError, match=r"overlay: overlay is not supported; vfs: no space"):
        buildah.command(tmp_path)


def test_the_time_is_the_environments_else_the_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert buildah.time_s({"SOURCE_DATE_EPOCH": "7"}) == 7
    with pytest.raises(ImageError, match="'yesterday': wanted are seconds since 1970"):
        buildah.time_s({"SOURCE_DATE_EPOCH": "yesterday"})

    monkeypatch.setattr(buildah, "ROOT", tmp_path)
    with pytest.raises(ImageError, match="no commit to take the image's time from: set SOURCE_DATE_EPOCH"):
        buildah.time_s({})

    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    dated = {**os.environ, "GIT_COMMITTER_DATE": "1600000000 +0000"}
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", "x"], check=True, env=dated)
    assert buildah.time_s({}) == 1_600_000_000


def test_a_missing_buildah_is_said_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ImageError, match="buildah is not on PATH: `apt-get install buildah`"):
        buildah.version()


def test_its_version_is_what_the_record_of_a_build_names(said: Path) -> None:
    assert buildah.version() == "1.28.2"
