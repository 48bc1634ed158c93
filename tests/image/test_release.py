"""Rehearsal of a release by its task, with a real registry: build, smoke test, push, SBOM, signature, tags, text.

verl.cpu is built and tested. A small image with its toolkit is pushed in its place, since the engine takes more than a
minute to compress verl.cpu. docs/images.md, "Publishing a release", has the result with verl.cpu itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from docker import DockerClient
from invoke import Context

from images.catalog.catalog import Catalog
from images.host.process import run
from images.provenance import verify
from images.registry.client import Repository
from images.release import candidate, release
from tasks import namespace
from tests.support.images import recorded_image

CPU = Catalog.read().find("cpu")
CHANGE = "- `$(touch pwned)`; `rm -rf .` | \"quoted\" 'text'"
TAG = f"{CPU.tag}-v9.8.7"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A commit with the version and its changes, in place of this checkout's, which may have changed files."""
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "pyproject.toml").write_text('[project]\nversion = "9.8.7"\n')
    (root / "CHANGELOG.md").write_text(f"# Changelog\n\n## [9.8.7] - 2026-11-24\n\n{CHANGE}\n")
    git = ["git", "-C", str(root), "-c", "user.name=x", "-c", "user.email=x"]
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "9.8.7"]):
        run([*git, *arguments])
    monkeypatch.setattr(release, "ROOT", root)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key.pem"
    run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(path)])
    return path


@pytest.fixture
def pushed_image(docker_client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The ID of the image that is pushed."""
    with recorded_image.built("verljob-test-release", tmp_path) as image:
        monkeypatch.setattr(candidate, "local", lambda _: image)
        yield str(image.id)


@pytest.fixture
def own_registry(registry: str, daemon: DockerClient, checkout: Path) -> Iterator[str]:
    """A path of the registry, and the end of the local names below it."""
    address = f"{registry}/{checkout.parent.name.replace('_', '-')}"
    yield address
    # Not images.list(), which inspects each: another test may have removed one meanwhile.
    for tag in {tag for image in daemon.api.images() for tag in image["RepoTags"] or () if tag.startswith(address)}:
        daemon.images.remove(tag, noprune=True)


@pytest.fixture
def publish(
    cpu_image: str, own_registry: str, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[], str]:
    """Run the task, and return its output."""

    def run_task() -> str:
        body = namespace["image.release"].body
        body(Context(), "v9.8.7", registry=own_registry, key=str(key), variants="cpu", output=str(tmp_path / "out"))
        return capsys.readouterr().out

    return run_task


def test_killed_release_is_continued_and_publishes_once(
    publish: Callable[[], str], own_registry: str, pushed_image: str, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = checkout.parent / "out"
    with monkeypatch.context() as patch:
        patch.setattr(candidate.verify, "verify", interrupt)
        with pytest.raises(KeyboardInterrupt):
            publish()
    with Repository(f"{own_registry}/verl.cpu") as repository:
        assert not {TAG, "latest"} & {*repository.tags()}
        first = publish()
        digest = candidate_digest(repository)
        assert {tag for tag in repository.tags() if not tag.startswith("sha256-")} == {
            TAG,
            "latest",
            f"{TAG}-g{commit(checkout)}",
            f"{TAG}-{pushed_image[7:19]}",
        }
        assert [repository.manifest(tag) for tag in ("latest", TAG)] == [repository.manifest(digest)] * 2

    assert f"cpu: {digest} is pushed and signed" in first
    assert f"cpu: {digest} is already in {own_registry}" in publish()
    notes = (output / "notes.md").read_text()
    assert notes.startswith(f"{CHANGE}\n\n## Published images\n\n| variant |")
    row = rf"\| `cpu` \| `{own_registry}/verl\.cpu:{TAG}` \| `{digest}` \| [\d.]+ MB \| `\S+( with ID |@)sha256:"
    assert re.search(row, notes)
    name = f"{own_registry}/verl.cpu@{digest}"
    assert verify.verify(name, output / "release.pub").endswith(f"signed by the owner of {output / 'release.pub'}")
    assert [path.name for path in checkout.iterdir() if path.name != ".git"] == ["pyproject.toml", "CHANGELOG.md"]


def interrupt(*_: object) -> str:
    raise KeyboardInterrupt


def candidate_digest(repository: Repository) -> str:
    manifest = repository.manifest(TAG)
    assert manifest
    return manifest.digest


def commit(checkout: Path) -> str:
    return run(["git", "-C", str(checkout), "rev-parse", "--short=12", "HEAD"]).strip()
