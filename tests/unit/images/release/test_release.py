"""A release is refused before anything is built unless version, CHANGELOG, commit, registry and key fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from images.catalog.catalog import Catalog
from images.errors import CommandFailed, ReleaseFailed
from images.host.process import run
from images.provenance import signing
from images.release import release
from images.release.release import Release
from images.report import record

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CPU = Catalog.read().find("cpu")


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Arguments of Release.from_flags that are accepted."""
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("## [1.2.0] - 2026-11-24\n\n- a change\n")
    key = tmp_path / "key.pem"
    run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(key)])
    monkeypatch.setattr(record, "checkout_state", lambda _: (COMMIT, []))
    monkeypatch.setattr(release, "ROOT", tmp_path)
    return {
        "version": "v1.2.0",
        "registry": "127.0.0.1:5000/team",
        "key": str(key),
        "output": str(tmp_path / "out"),
    }


@pytest.mark.parametrize("version", ["1.2.0", "v1.2.0"])
def test_version_or_git_tag_makes_the_tags_of_a_variant(arguments: dict[str, Any], version: str) -> None:
    made = Release.from_flags(**{**arguments, "version": version})

    assert made.repository(CPU) == "127.0.0.1:5000/team/verl.cpu"
    assert made.tag(CPU) == f"{CPU.tag}-v1.2.0"
    assert made.candidate_tag(CPU) == f"{CPU.tag}-v1.2.0-g0123456789ab"
    assert made.changes == "- a change"
    assert made.public_key.read_text() == signing.public_key(made.key)


@pytest.mark.parametrize("version", ["1.2.1", "v1; rm", "v1.2.0$(touch pwned)", "", "vv1.2.0", "1.2.0\n"])
def test_another_version_than_pyprojects_fails(arguments: dict[str, Any], version: str) -> None:
    with pytest.raises(ReleaseFailed, match=r"is not the version of this checkout: pyproject.toml has 1.2.0"):
        Release.from_flags(**{**arguments, "version": version})
    assert not Path(arguments["output"]).exists()


def test_version_that_no_image_tag_can_have_fails(arguments: dict[str, Any]) -> None:
    (release.ROOT / "pyproject.toml").write_text('[project]\nversion = "1.2+site; rm"\n')

    with pytest.raises(ReleaseFailed, match=r"which is not like 1\.2\.0 or 1\.2\.0rc1"):
        Release.from_flags(**{**arguments, "version": "1.2+site; rm"})


def test_version_without_changes_fails(arguments: dict[str, Any]) -> None:
    (release.ROOT / "CHANGELOG.md").write_text("## [Unreleased]\n\n- a change\n")

    with pytest.raises(ReleaseFailed, match=r"CHANGELOG.md has no text for 1.2.0 \(it has Unreleased\)"):
        Release.from_flags(**arguments)


@pytest.mark.parametrize("registry", ["a.example,b.example", "Team", "r.example/a b", "-rf", "r.example/", "r;rm", ""])
def test_invalid_registry_fails(arguments: dict[str, Any], registry: str) -> None:
    with pytest.raises(ReleaseFailed, match="is not HOST"):
        Release.from_flags(**{**arguments, "registry": registry})


@pytest.mark.parametrize("state", [(COMMIT, ["run", "tasks.py"]), ("", [])])
def test_checkout_with_changes_or_without_a_commit_fails(
    arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch, state: tuple[str, list[str]]
) -> None:
    monkeypatch.setattr(record, "checkout_state", lambda _: state)

    with pytest.raises(ReleaseFailed, match=r"is not a commit: (run, tasks\.py|it has no commit)\. Commit or remove"):
        Release.from_flags(**arguments)


def test_file_that_is_no_private_key_fails(arguments: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("\n")
    for name in ("empty.pem", "missing.pem"):
        with pytest.raises(ReleaseFailed, match=rf"--key \S+{name} is not a private key that can be read"):
            Release.from_flags(**{**arguments, "key": str(tmp_path / name)})


def test_version_of_this_checkout_is_readable() -> None:
    assert release.VERSION.fullmatch(release.toolkit_version())


def test_commit_and_changed_files_of_a_checkout(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed):
        record.checkout_state(tmp_path)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x"]
    run([*git, "init", "--quiet"])
    assert record.checkout_state(tmp_path) == ("", [])

    (tmp_path / "a").write_text("1")
    run([*git, "add", "."])
    run([*git, "commit", "--quiet", "--message", "first"])
    assert record.checkout_state(tmp_path) == (run([*git, "rev-parse", "HEAD"]).strip(), [])
    (tmp_path / "b").write_text("1")
    assert record.checkout_state(tmp_path)[1] == ["b"]
