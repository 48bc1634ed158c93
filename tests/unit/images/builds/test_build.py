"""The build command and what a site hands to it."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from images.builds import fetch
from images.builds.plan import BuildPlan
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.context import context, labels
from images.engine import base_image
from images.engine.base_image import MADE
from images.engine.client import Engine
from images.engine.daemon import Inspected
from images.errors import BaseUnreachable
from images.host.paths import ENTRYPOINTS

CATALOG = Catalog.read()
CPU = CATALOG.variants["cpu"]
TOOLKIT = ENTRYPOINTS
MIRRORED = "mirror.example/library/debian:bookworm-slim"
PINNED = Site(base_mirror="mirror.example").mirrored(CATALOG.variants["rocm6.2"].base_pinned)
ENGINE = Engine("/usr/bin/docker", "20.10.24", buildx=False)


BASE = Inspected({"Id": "sha256:" + "1" * 64, "RepoDigests": ["a@sha256:" + "2" * 64]})


def test_an_image_is_named_for_its_verl_and_its_variant_and_a_default_is_latest() -> None:
    assert CATALOG.names(CPU) == ["verl.cpu:0.9.1-cpu", "verl.cpu:latest"]
    assert CATALOG.names(CATALOG.variants["cpu-vllm"]) == ["verl.cpu:0.9.1-cpu-vllm"]
    assert CATALOG.names(CATALOG.variants["rocm6.2"]) == ["verl.rocm:0.4.1-rocm6.2", "verl.rocm:latest"]


def test_a_tag_of_the_callers_takes_the_place_of_the_usual_names() -> None:
    assert CATALOG.names(CPU, "mine") == ["verl.cpu:mine"]
    assert CATALOG.names(CPU, "team/verl:1") == ["team/verl:1"]


def test_facts_of_a_build_are_labels_since_an_argument_would_rebuild_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    (tmp_path / "toolkit").mkdir()
    (tmp_path / "toolkit/image.json").write_text(json.dumps({"toolkit": "abc"}))

    facts = labels.build_labels("a:1", BASE, tmp_path)
    plan = BuildPlan(CPU, ENGINE, "a:1", BASE, ["n:1", "n:2"], tmp_path, facts, "docker", {"the base": "sha256:1"})
    argv = plan.docker_argv(["--secret", "id=pip,src=x"])

    assert argv == [
        *("/usr/bin/docker", "build", "--tag", "n:1", "--tag", "n:2"),
        *("--progress", "plain", "--build-arg", "BASE=a:1", "--secret", "id=pip,src=x"),
        *("--label", "verljob.base=a:1", "--label", "org.opencontainers.image.base.name=a:1"),
        *("--label", "verljob.toolkit=abc", "--label", f"verljob.base.id={'sha256:' + '1' * 64}"),
        *("--label", f"org.opencontainers.image.base.digest={'sha256:' + '2' * 64}"),
        *("--label", f"verljob.inputs={plan.key}", str(tmp_path)),
    ]


def test_the_time_of_creation_is_a_label_only_where_it_is_the_same_for_every_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    (tmp_path / "toolkit").mkdir()
    (tmp_path / "toolkit/image.json").write_text(json.dumps({"toolkit": "abc"}))

    assert labels.build_labels("a:1", BASE, tmp_path)["org.opencontainers.image.created"] == "2023-11-14T22:13:20+00:00"


@pytest.fixture
def staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(context, "STAGED", tmp_path)
    return context.stage(CPU, "base:1", [])


def test_a_context_holds_what_its_dockerfile_mounts_and_nothing_else(staged: Path) -> None:
    mounted = {"steps", "apt.txt", "lock.txt", "verl.txt", "wheelhouse", "debs", "git", "toolkit"}
    assert {path.name for path in staged.iterdir()} == {"Dockerfile", *mounted}
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


def test_files_are_readable_by_every_uid_whatever_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "STAGED", tmp_path)
    before = os.umask(0o077)
    try:
        staged = context.stage(CPU, "base:1", [])
    finally:
        os.umask(before)

    modes = {path: path.stat().st_mode & 0o777 for path in (staged / "toolkit").rglob("*")}

    assert modes.pop(staged / "toolkit/entrypoint.sh") == 0o755
    assert all(mode == (0o755 if path.is_dir() else 0o644) for path, mode in modes.items() if path.suffix != ".sh")


def test_the_toolkits_revision_changes_with_a_byte_and_not_with_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "STAGED", tmp_path / "staged")
    monkeypatch.setattr(context, "ENTRYPOINTS", tmp_path / "entrypoints")
    shutil.copytree(TOOLKIT, tmp_path / "entrypoints")
    edited = tmp_path / "entrypoints/verl_node/__main__.py"

    def revision() -> str:
        return str(json.loads((context.stage(CPU, "base:1", []) / "toolkit/image.json").read_text())["toolkit"])

    first = revision()
    edited.touch()
    touched = revision()
    edited.write_text(edited.read_text() + "\n")

    assert touched == first
    assert revision() != first


@pytest.mark.parametrize(
    ("variant", "asked", "here", "taken"),
    [
        ("cpu", "", {MADE}, MADE),
        (
            "cpu",
            "",
            {MADE, MIRRORED},
            MIRRORED,
        ),
        ("cpu", "mine:1", {MADE, "mine:1"}, "mine:1"),
        ("rocm6.2", "", {PINNED}, PINNED),
        ("rocm6.2", "", {PINNED, "mine:1"}, PINNED),
    ],
)
def test_a_base_that_is_here_is_taken_without_a_pull(
    variant: str, asked: str, here: set[str], taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_image, "find", lambda reference: BASE if reference in here else None)
    monkeypatch.setattr(base_image, "pull", lambda *_: pytest.fail("nothing has to be fetched"))
    site = Site(base_mirror="mirror.example")

    assert fetch.base_of(CATALOG.variants[variant], ENGINE, asked, site) == taken


def test_a_pinned_base_is_pulled_though_its_tag_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tag may be another image by now; without an answer of the registry it is taken."""
    variant, pulled = replace(CATALOG.variants["rocm6.2"], base_digest="sha256:" + "1" * 64), list[str]()
    monkeypatch.setattr(base_image, "find", lambda reference: BASE if reference == variant.base else None)

    def pull(_: Engine, reference: str) -> None:
        pulled.append(reference)
        raise BaseUnreachable(reference, "no such host")

    monkeypatch.setattr(base_image, "pull", pull)

    assert fetch.base_of(variant, ENGINE, "", Site()) == variant.base
    assert pulled == [variant.base_pinned]
