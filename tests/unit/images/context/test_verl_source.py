"""verl from a checkout or a commit."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from images.catalog.catalog import Catalog
from images.catalog.compatibility import check_variant
from images.context import context, inputs, verl_source
from images.context.dockerfile import parse
from images.context.render import dockerfile
from images.context.staging import Staging
from images.errors import ImageError, Incompatible
from images.host.digests import DigestCache
from images.pins.locks import split
from images.report.record import _verl

CATALOG = Catalog.read()
CPU = CATALOG.variants["cpu"]


def nothing(_: str) -> dict[str, str]:
    return {}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "verl"
    for name, content in {"version/version": "0.10.0.dev0\n", "__init__.py": "x = 1\n", "run.sh": ":\n"}.items():
        (folder / "verl" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "verl" / name).write_text(content)
    (folder / "verl/run.sh").chmod(0o700)
    (folder / "verl/__pycache__").mkdir()
    (folder / "verl/.cache").touch()
    (folder / "outputs").mkdir()
    return folder


@pytest.fixture
def repository(checkout: Path) -> Callable[..., str]:
    """Runs git in the checkout, which has one commit on `main`."""

    def git(*words: str) -> str:
        who = ["-c", "user.name=me", "-c", "user.email=me@localhost"]
        argv = ["git", "-C", str(checkout), *who, *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--quiet", "--initial-branch=main")
    git("add", "verl/version", "verl/__init__.py")
    git("commit", "--quiet", "--message=one")
    return git


def stage(found: verl_source.Source, context: Path) -> Path:
    """Stage only the source, and return the folder that becomes /opt/verl."""
    cache = DigestCache(context.with_name("digests.json"))
    with Staging(context, cache, cache) as staging:
        verl_source.stage(found, staging, "verl")
    return context / "verl"


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()}


def test_a_checkout_is_copied_with_metadata_and_without_caches_and_git_files(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = verl_source.find(str(checkout), nothing)
    staged = stage(found, tmp_path / "context")
    facts = "verl-0.10.0.dev0.dist-info"

    assert files(staged) == {
        *("verl/__init__.py", "verl/version/version", "verl/run.sh"),
        *(f"{facts}/METADATA", f"{facts}/INSTALLER", f"{facts}/direct_url.json"),
    }
    (installed,) = metadata.distributions(path=[str(staged)])
    assert (installed.metadata["Name"], installed.version) == ("verl", "0.10.0.dev0")
    url = json.loads((staged / facts / "direct_url.json").read_text())
    assert url == {"url": checkout.as_uri(), "dir_info": {"editable": False}}


def test_modes_do_not_depend_on_the_checkouts_umask(checkout: Path, tmp_path: Path) -> None:
    (checkout / "verl/__init__.py").chmod(0o600)
    staged = stage(verl_source.find(str(checkout), nothing), tmp_path / "context")

    modes = {path.name: path.stat().st_mode & 0o777 for path in (staged / "verl").iterdir()}
    assert modes == {"__init__.py": 0o644, "run.sh": 0o755, "version": 0o755}
    assert (checkout / "verl/__init__.py").stat().st_mode & 0o777 == 0o600, "the checkout is not changed"


def test_an_editable_checkout_is_linked(checkout: Path, tmp_path: Path) -> None:
    staged = stage(verl_source.find(str(checkout), nothing, editable=True), tmp_path / "context")

    assert (staged / "verl").readlink() == checkout / "verl"
    assert (checkout / "verl").stat().st_mode & 0o777 == 0o755


def test_a_git_reference_is_recorded_by_its_full_commit(
    checkout: Path, repository: Callable[..., str], tmp_path: Path
) -> None:
    found = verl_source.find(f"git+{checkout.as_uri()}@main", nothing, commits=tmp_path / "commits")

    commit = repository("rev-parse", "HEAD")
    assert (found.commit, found.label, found.version) == (commit, commit[:12], "0.10.0.dev0")
    facts = {"vcs": "git", "requested_revision": "main", "commit_id": commit}
    assert found.direct_url == {"url": checkout.as_uri(), "vcs_info": facts}
    assert files(found.folder) == {"verl/__init__.py", "verl/version/version"}


def test_a_branch_that_moved_is_fetched_again_and_a_commit_is_not(
    checkout: Path, repository: Callable[..., str], tmp_path: Path
) -> None:
    url, first = f"git+{checkout.as_uri()}", repository("rev-parse", "HEAD")
    verl_source.find(f"{url}@main", nothing, commits=tmp_path / "commits")
    (checkout / "verl/__init__.py").write_text("x = 2\n")
    repository("commit", "--quiet", "--all", "--message=two")

    moved = verl_source.find(f"{url}@main", nothing, commits=tmp_path / "commits")
    kept = verl_source.find(f"{url}@{first}", nothing, commits=tmp_path / "commits")

    assert (moved.folder / "verl/__init__.py").read_text() == "x = 2\n"
    assert (kept.folder / "verl/__init__.py").read_text() == "x = 1\n"


def test_unpacking_a_revision_runs_no_hook(
    checkout: Path, repository: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = tmp_path / "hooks" / "post-checkout"
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    (tmp_path / "gitconfig").write_text(f"[core]\nhooksPath = {hook.parent}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))

    verl_source.find(f"git+{checkout.as_uri()}@main", nothing, commits=tmp_path / "commits")

    assert not (tmp_path / "ran").exists()


def test_a_link_in_a_repository_leads_nowhere(checkout: Path, repository: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (checkout / "verl/link.py").symlink_to(tmp_path / "secret")
    (checkout / "verl/folder").symlink_to(tmp_path)
    repository("add", "verl/link.py", "verl/folder")
    repository("commit", "--quiet", "--message=links")

    found = verl_source.find(f"git+{checkout.as_uri()}@main", nothing, commits=tmp_path / "commits")

    for name, target in {"link.py": tmp_path / "secret", "folder": tmp_path}.items():
        file = found.folder / "verl" / name
        assert not file.is_symlink()
        assert file.read_text() == str(target)


@pytest.mark.parametrize(
    ("verl", "message"),
    [
        ("/no/such/folder", "is not a checkout of verl"),
        ("git+https://example.com/verl.git", r"pass git\+URL@REF or git:REF"),
        ("git:", "pass git"),
    ],
)
def test_an_invalid_source_is_refused_with_valid_forms(verl: str, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        verl_source.find(verl, nothing)


def test_editable_needs_a_checkout(checkout: Path) -> None:
    with pytest.raises(ImageError, match="only a checkout's folder can be --editable"):
        verl_source.find("git:main", nothing, editable=True)
    with pytest.raises(ImageError, match="pass its folder with --verl PATH"):
        verl_source.from_flags(CPU, "", True, nothing)


def test_a_version_file_without_a_version_is_named(checkout: Path) -> None:
    (checkout / "verl/version/version").write_text("main\n")

    with pytest.raises(ImageError, match="verl/version/version has no valid version"):
        verl_source.find(str(checkout), nothing)


def test_an_image_of_a_checkout_has_another_tag_and_is_never_latest(checkout: Path) -> None:
    variant, _ = verl_source.from_flags(CPU, str(checkout), False, nothing)

    assert CATALOG.names(variant) == ["verl.cpu:0.10.0.dev0-cpu-local"]
    assert variant.pins["verl"] == "0.10.0.dev0"
    of_release = CPU.installs["verl"]
    assert CPU.state.kind == "ran"
    assert (
        str(variant.state) == f"reasoned: it has verl 0.10.0.dev0 (local), and the catalog's state is for {of_release}"
    )


def test_a_checkout_that_cannot_run_on_the_base_is_refused(checkout: Path) -> None:
    variant, _ = verl_source.from_flags(CATALOG.variants["rocm6.2"], str(checkout), False, nothing)

    with pytest.raises(Incompatible, match=r"verl 0\.10\.0\.dev0 needs Python .*3\.10"):
        check_variant(variant)


@pytest.mark.parametrize("variant", ["rocm6.2", "cu130", "cpu", "cpu-vllm"])
def test_verls_source_is_the_last_layer_and_the_layers_below_are_those_of_the_release(
    variant: str, checkout: Path
) -> None:
    release = CATALOG.variants[variant]
    own = verl_source.with_source(release, verl_source.find(str(checkout), nothing))
    of_release, of_checkout = (
        [each.text for each in parse(dockerfile(each_of)) if each.is_step] for each_of in (release, own)
    )

    assert of_checkout[-1] == "COPY verl/ /opt/verl/"
    assert of_checkout[:-4] == of_release[:-3]
    assert of_checkout[-3:-1] == of_release[-2:]
    assert of_release[-1] == "COPY toolkit/ /opt/verljob/"
    assert "source=verl.txt" in of_release[-3]


def test_a_bump_of_verl_changes_only_verls_own_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "STAGED", tmp_path)
    folder = context.stage(CPU, "base:1", {}).folder

    assert (folder / "verl.txt").read_text().startswith(f"verl=={CPU.installs['verl']}")
    assert "\nverl==" not in (folder / "lock.txt").read_text()
    below = [each.text for each in parse((folder / "Dockerfile").read_text()) if each.is_step][:-3]
    assert not [text for text in below if CPU.installs["verl"] in text]


def test_a_package_and_the_header_are_removed_from_a_lock() -> None:
    of_verl = "verl==2 --hash=sha256:1 --hash=sha256:2\n"

    assert split(f"# requested: verl==2\na==1\n{of_verl}verl-x==3\n", "verl") == ("a==1\nverl-x==3\n", of_verl)
    assert split("a==1\n", "verl") == ("a==1\n", "")


def test_provenance_has_verls_source_as_one_dependency(checkout: Path, tmp_path: Path) -> None:
    source = verl_source.find(str(checkout), nothing)
    stage(source, tmp_path / "context")
    entries = {str(path.relative_to(tmp_path / "context")): None for path in (tmp_path / "context").rglob("*")}
    files = inputs.files(inputs.collect(tmp_path / "context", "", "", {}, entries))

    (dependency,) = _verl(source, files)
    assert (dependency["name"], dependency["uri"]) == ("verl", checkout.as_uri())
    assert len(dependency["digest"]["sha256"]) == 64
