"""The build command and what a site hands to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from images import build, context
from images.build import Site
from images.catalog import Catalog
from images.engine import Engine

CATALOG = Catalog.read()
CPU = CATALOG.variants["cpu"]
ENGINE = Engine("/usr/bin/docker", "20.10.24", buildx=False)


class Images:
    """A daemon's images, as docker-py shows them."""

    def __init__(self) -> None:
        self.images = self
        self.id = "sha256:" + "1" * 64

    def get(self, _reference: str) -> Images:
        return self


def test_an_image_is_named_for_its_verl_and_its_variant_and_a_default_is_latest() -> None:
    assert build.names(CPU, CATALOG) == ["verl.cpu:0.9.1-cpu", "verl.cpu:latest"]
    assert build.names(CATALOG.variants["cpu-vllm"], CATALOG) == ["verl.cpu:0.9.1-cpu-vllm"]
    assert build.names(CATALOG.variants["rocm6.2"], CATALOG) == ["verl.rocm:0.4.1-rocm6.2", "verl.rocm:latest"]


def test_a_tag_of_the_callers_takes_the_place_of_the_usual_names() -> None:
    assert build.names(CPU, CATALOG, "mine") == ["verl.cpu:mine"]
    assert build.names(CPU, CATALOG, "team/verl:1") == ["team/verl:1"]


def test_the_ca_bundle_comes_from_the_flag_else_from_the_environment() -> None:
    machine = {"SSL_CERT_FILE": "/etc/machine.pem", "PIP_CERT": "/etc/pip.pem"}

    assert Site.here(ca="/mine.pem", environment=machine).ca == Path("/mine.pem")
    assert Site.here(environment=machine).ca == Path("/etc/machine.pem")
    assert Site.here(environment={"PIP_CERT": "/etc/pip.pem"}).ca == Path("/etc/pip.pem")
    assert Site.here(environment={}).ca is None


def test_a_password_in_an_index_reaches_the_build_in_a_file_and_no_argument(tmp_path: Path) -> None:
    site = Site.here(pip_index="https://me:secret@index/simple", ca="/ca.pem", environment={})

    flags = site.secrets(CPU, tmp_path)

    assert "secret@" not in " ".join(flags)
    assert flags[:2] == ["--secret", "id=ca,src=/ca.pem"]
    config = tmp_path / "pip"
    assert f"id=pip,src={config}" in flags
    assert "index-url = https://me:secret@index/simple" in config.read_text()
    assert "cert = /run/secrets/ca" in config.read_text()
    assert config.stat().st_mode & 0o077 == 0


def test_without_a_ca_bundle_pip_is_not_pointed_at_one(tmp_path: Path) -> None:
    Site.here(environment={}).secrets(CPU, tmp_path)

    assert "cert" not in (tmp_path / "pip").read_text()
    assert "CAInfo" not in (tmp_path / "apt").read_text()


def test_an_apt_mirror_stands_in_for_the_distributions_with_its_suites(tmp_path: Path) -> None:
    Site.here(apt_mirror="http://mirror/debian", environment={}).secrets(CPU, tmp_path)

    assert (tmp_path / "sources").read_text().splitlines() == [
        "deb http://mirror/debian bookworm main",
        "deb http://mirror/debian bookworm-updates main",
    ]
    assert 'Dir::Etc::SourceList "/run/secrets/sources";' in (tmp_path / "apt").read_text()


def test_facts_of_a_build_are_labels_since_an_argument_would_rebuild_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "daemon", Images)
    (tmp_path / "toolkit").mkdir()
    (tmp_path / "toolkit/image.json").write_text(json.dumps({"toolkit": "abc"}))

    argv = build.argv(ENGINE, "a:1", ["n:1", "n:2"], tmp_path, ["--secret", "id=pip,src=x"])

    assert argv == [
        *("/usr/bin/docker", "build", "--tag", "n:1", "--tag", "n:2"),
        *("--label", "verljob.base=a:1", "--label", f"verljob.base.id={'sha256:' + '1' * 64}"),
        *("--label", "verljob.toolkit=abc", "--build-arg", "BASE=a:1", "--secret", "id=pip,src=x", str(tmp_path)),
    ]


@pytest.fixture
def staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(context, "STAGED", tmp_path)
    return context.stage(CPU, "base:1", [])


def test_a_context_holds_what_its_dockerfile_mounts_and_nothing_else(staged: Path) -> None:
    assert {path.name for path in staged.iterdir()} == {
        "Dockerfile",
        "apt.txt",
        "lock.txt",
        "steps",
        "toolkit",
        "wheelhouse",
    }
    assert not list(staged.rglob("__pycache__"))
    assert {path.name for path in (staged / "toolkit/python").iterdir()} == {"verl_node", "verl_cpu"}


def test_the_images_own_description_has_the_keys_that_the_parts_agreed_on(staged: Path) -> None:
    manifest = json.loads((staged / "toolkit/image.json").read_text())

    agreed = {"name", "variant", "platform", "base", "toolkit", "template", "pins"}  # docs/flow.md, "In the image"
    assert set(manifest) == agreed
    assert manifest["pins"] == CPU.pins


def test_a_gpu_image_carries_no_cpu_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "STAGED", tmp_path)

    folder = context.stage(CATALOG.variants["cu130"], "base:1", [])

    assert {path.name for path in (folder / "toolkit/python").iterdir()} == {"verl_node"}


def test_files_are_readable_by_every_uid_whatever_the_checkouts_umask(staged: Path) -> None:
    modes = {path: path.stat().st_mode & 0o777 for path in (staged / "toolkit").rglob("*")}

    assert modes.pop(staged / "toolkit/entrypoint.sh") == 0o755
    assert all(mode == (0o755 if path.is_dir() else 0o644) for path, mode in modes.items() if path.suffix != ".sh")


def test_the_toolkits_revision_changes_with_a_byte_and_not_with_time(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file").write_text("one")
    first = context.toolkit_revision(tmp_path)
    (tmp_path / "a/file").touch()
    touched = context.toolkit_revision(tmp_path)
    (tmp_path / "a/file").write_text("two")

    assert touched == first
    assert context.toolkit_revision(tmp_path) != first
