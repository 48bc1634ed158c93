"""A bundle has exactly its files, fits one build, and is laid out where the Dockerfile mounts it."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from images.builds import bundle
from images.builds.bundle import Bundle
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.context import context, render
from images.errors import BundleBroken
from images.host.process import run

CATALOG = Catalog.read()
CPU, ROCM = (CATALOG.variants[name] for name in ("cpu", "rocm6.2"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bundle of the variant cpu."""
    for name in ("base.tar", "wheels/ray.whl", "debs/tini.deb", "debs/Packages", "git/vllm.git/HEAD"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(name)
    names = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    base = {"reference": "debian:1", "id": "sha256:" + "1" * 64}
    Bundle(tmp_path, "cpu", bundle.input_digests(CPU), base, bundle.hashes(tmp_path, names)).write()
    return tmp_path


def test_a_written_bundle_can_be_read(folder: Path) -> None:
    read = Bundle.read(folder)

    assert (read.variant, read.base["reference"], len(read.files)) == ("cpu", "debian:1", 5)
    read.refuse_unfit(CPU)


def test_every_missing_unknown_or_damaged_file_is_named(folder: Path) -> None:
    (folder / "base.tar").unlink()
    (folder / "wheels/ray.whl").write_text("other")
    (folder / "debs/strange.deb").touch()

    with pytest.raises(BundleBroken) as broken:
        Bundle.read(folder)

    message = (
        "base.tar is missing; debs/strange.deb is not part of it; wheels/ray.whl is damaged. Copy the bundle again"
    )
    assert message in str(broken.value)


def test_only_the_first_bad_files_are_named(folder: Path) -> None:
    for number in range(8):
        (folder / f"more-{number}").touch()

    with pytest.raises(BundleBroken, match="more-4 is not part of it and 3 more"):
        Bundle.read(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read"), ("{", "is not a bundle"), ('{"format": 99}', "another format than 1")],
)
def test_a_folder_without_a_bundle_is_refused(folder: Path, content: str | None, message: str) -> None:
    (folder / "bundle.json").unlink()
    if content:
        (folder / "bundle.json").write_text(content)

    with pytest.raises(BundleBroken, match=message):
        Bundle.read(folder)


def test_a_bundle_of_another_variant_catalog_or_lock_is_refused(folder: Path) -> None:
    with pytest.raises(BundleBroken, match="is a bundle of cpu, not of rocm6"):
        Bundle.read(folder).refuse_unfit(ROCM)
    with pytest.raises(BundleBroken, match="was made from another lock and set of sources of cpu than this"):
        Bundle.read(folder).refuse_unfit(replace(CPU, installs={**CPU.installs, "torch": "2.13.1"}))
    Bundle.read(folder).refuse_unfit(replace(CPU, summary="in other words"))
    content = json.loads((folder / "bundle.json").read_text())
    content["inputs"]["lock"] = "0"
    (folder / "bundle.json").write_text(json.dumps(content))
    with pytest.raises(BundleBroken, match="from another lock of cpu"):
        Bundle.read(folder).refuse_unfit(CPU)


def test_a_bundle_is_laid_out_where_the_dockerfile_mounts_it(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "STAGED", tmp_path_factory.mktemp("staged"))

    staged = context.stage(CPU, "base:1", Bundle.read(folder).context_files()).folder

    found = {str(path.relative_to(staged)) for path in staged.rglob("*") if path.is_file()}
    files = {name for name in found if name.startswith(("wheelhouse/", "debs/", "git/"))}
    assert files == {"wheelhouse/ray.whl", "debs/tini.deb", "debs/Packages", "git/vllm.git/HEAD"}
    assert (staged / "wheelhouse/ray.whl").samefile(folder / "wheels/ray.whl")
    for name in ("wheelhouse", "debs"):
        assert f"--mount=type=bind,source={name},target=/{name}" in render.dockerfile(CPU)
    assert "--mount=type=bind,source=git,target=/git" in render.dockerfile(ROCM)


def test_pip_apt_and_git_use_only_the_context_without_a_network(tmp_path: Path) -> None:
    Site(offline=True).secrets(ROCM, tmp_path)

    pip, apt, git, sources = ((tmp_path / name).read_text().splitlines() for name in ("pip", "apt", "git", "sources"))
    assert pip[2:] == ["no-index = true", "find-links = /wheelhouse"]
    assert sources == ["deb [trusted=yes] copy:/debs ./"]
    assert 'Dir::Etc::SourceList "/run/secrets/sources";' in apt
    assert git == ['[url "file:///git/vllm.git"]', 'insteadOf = "https://github.com/vllm-project/vllm.git"']


@pytest.mark.parametrize("variant", CATALOG.variants.values(), ids=list(CATALOG.variants))
def test_a_bundle_downloads_the_packages_of_the_dockerfile(variant: Variant) -> None:
    (packages,) = re.findall(r"apt.sh --download /out/debs /apt.txt (.+) \\\n", render.bundle(variant))

    assert "tini" in packages.split()
    assert f"sh /apt.sh /apt.txt {packages}\n" in render.dockerfile(variant)


def test_the_digests_of_a_bundle_depend_on_the_build_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = bundle.input_digests(CPU)
    shutil.copytree(render.TEMPLATES, tmp_path / "dockerfiles", ignore=shutil.ignore_patterns("rendered"))
    (tmp_path / "dockerfiles/build-tools.txt").write_text("setuptools==1 --hash=sha256:0\n")
    monkeypatch.setattr(render, "TEMPLATES", tmp_path / "dockerfiles")

    assert bundle.input_digests(CPU)["set of sources"] != before["set of sources"]


def test_a_bundle_is_not_written_to_a_folder_with_files(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(BundleBroken, match="is not empty; pass an empty folder"):
        bundle.make(CPU, Site(), tmp_path)


def test_a_bundled_commit_replaces_its_repository(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    git = ["git", "-C", str(origin), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    run(["git", "init", "--quiet", str(origin)])
    for text in ("first", "second"):
        (origin / "file").write_text(text)
        run([*git, "add", "file"])
        run([*git, "commit", "--quiet", "--message", text])
    first = run([*git, "rev-parse", "HEAD~1"]).strip()
    new = replace(ROCM.replaces["vllm"], repository=f"file://{origin}", commit=first)
    variant = replace(ROCM, replaces={"vllm": new})

    bundle.fetch_sources(variant, Site(), tmp_path / "bundle")
    config = tmp_path / "secrets"
    config.mkdir()
    Site(offline=True).secrets(variant, config)
    text = (config / "git").read_text().replace("file:///git/", f"file://{tmp_path}/bundle/")
    (config / "git").write_text(text)
    (tmp_path / "origin").rename(tmp_path / "gone")

    # As dockerfiles/rocm.j2 does.
    run(["git", "init", "--quiet", str(tmp_path / "src")])
    src = ["git", "-C", str(tmp_path / "src")]
    run([*src, "-c", f"include.path={config / 'git'}", "fetch", "--quiet", "--depth", "1", new.repository, first])
    run([*src, "checkout", "--quiet", "FETCH_HEAD"])

    assert (tmp_path / "src/file").read_text() == "first"
    assert run([*src, "rev-parse", "HEAD"]).strip() == first
