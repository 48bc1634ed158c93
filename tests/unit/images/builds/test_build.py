"""The build command, the staged context, and the choice of the base."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from images.builds import build, builder, fetch
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.context import context, inputs
from images.context.context import BuildContext
from images.context.plan import BuildPlan, build_labels
from images.engine import base_image, daemon
from images.engine.base_image import MADE
from images.engine.client import Engine
from images.engine.daemon import Inspected
from images.errors import BaseUnreachable
from images.host.paths import ENTRYPOINTS
from images.host.process import Commands
from images.report import record, store
from images.report.progress import Progress

CATALOG = Catalog.read()
CPU = CATALOG.variants["cpu"]
MIRRORED = "mirror.example/library/debian:bookworm-slim"
PINNED = Site(base_mirror="mirror.example").mirrored(CATALOG.variants["rocm6.2"].base_pinned)
ENGINE = Engine("/usr/bin/docker", "20.10.24", buildx=False)


BASE = Inspected({"Id": "sha256:" + "1" * 64, "RepoDigests": ["a@sha256:" + "2" * 64]})


def test_an_image_is_named_by_verl_and_variant_and_a_default_variant_is_latest() -> None:
    assert CATALOG.names(CPU) == ["verl.cpu:0.9.1-cpu", "verl.cpu:latest"]
    assert CATALOG.names(CATALOG.variants["cpu-vllm"]) == ["verl.cpu:0.9.1-cpu-vllm"]
    assert CATALOG.names(CATALOG.variants["rocm6.2"]) == ["verl.rocm:0.4.0-rocm6.2", "verl.rocm:latest"]


def test_a_given_tag_replaces_the_usual_names() -> None:
    assert CATALOG.names(CPU, "mine") == ["verl.cpu:mine"]
    assert CATALOG.names(CPU, "team/verl:1") == ["team/verl:1"]


def test_facts_of_a_build_are_labels_not_build_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    staged = BuildContext(tmp_path, "", {"toolkit": "abc"}, {})

    labels = build_labels("a:1", BASE, staged.manifest["toolkit"])
    plan = BuildPlan(CPU, ["n:1", "n:2"], ENGINE, "a:1", BASE, staged, labels, {"the base": "sha256:1"})
    argv = plan.docker_argv(["--secret", "id=pip,src=x"])

    assert argv == [
        *("/usr/bin/docker", "build", "--tag", "n:1", "--tag", "n:2"),
        *("--progress", "plain", "--build-arg", "BASE=a:1", "--secret", "id=pip,src=x"),
        *("--label", "verljob.base=a:1", "--label", "org.opencontainers.image.base.name=a:1"),
        *("--label", "verljob.toolkit=abc", "--label", f"verljob.base.id={'sha256:' + '1' * 64}"),
        *("--label", f"org.opencontainers.image.base.digest={'sha256:' + '2' * 64}"),
        *("--label", f"verljob.inputs={plan.key}", str(tmp_path)),
    ]


def test_the_creation_time_is_a_label_only_if_it_is_the_same_for_every_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")

    assert build_labels("a:1", BASE, "abc")["org.opencontainers.image.created"] == "2023-11-14T22:13:20+00:00"


@pytest.fixture
def staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(context, "STAGED", tmp_path)
    return context.stage(CPU, "base:1", {}).folder


def test_a_context_has_the_files_that_its_dockerfile_mounts_and_no_others(staged: Path) -> None:
    mounted = {"steps", "apt.txt", "lock.txt", "verl.txt", "wheelhouse", "debs", "git", "toolkit"}
    assert {path.name for path in staged.iterdir()} == {"Dockerfile", *mounted}
    assert not list(staged.rglob("__pycache__"))
    assert {path.name for path in (staged / "toolkit/python").iterdir()} == {"verl_node", "verl_cpu"}


def test_the_manifest_of_the_image_has_the_documented_keys(staged: Path) -> None:
    manifest = json.loads((staged / "toolkit/image.json").read_text())

    documented = {
        "name",
        "variant",
        "platform",
        "base",
        "toolkit",
        "template",
        "pins",
        "state",
    }  # docs/flow.md, "In the image"
    assert set(manifest) == documented
    assert manifest["pins"] == CPU.pins


def test_a_gpu_image_has_no_cpu_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "STAGED", tmp_path)

    folder = context.stage(CATALOG.variants["cu130"], "base:1", {}).folder

    assert {path.name for path in (folder / "toolkit/python").iterdir()} == {"verl_node"}


def test_files_are_readable_by_every_uid_with_any_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "STAGED", tmp_path)
    before = os.umask(0o077)
    try:
        staged = context.stage(CPU, "base:1", {}).folder
    finally:
        os.umask(before)

    modes = {path: path.stat().st_mode & 0o777 for path in (staged / "toolkit").rglob("*")}

    assert modes.pop(staged / "toolkit/entrypoint.sh") == 0o755
    assert all(mode == (0o755 if path.is_dir() else 0o644) for path, mode in modes.items() if path.suffix != ".sh")


def test_the_toolkits_revision_depends_on_content_not_on_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "STAGED", tmp_path / "staged")
    monkeypatch.setattr(context, "ENTRYPOINTS", tmp_path / "entrypoints")
    shutil.copytree(ENTRYPOINTS, tmp_path / "entrypoints")
    edited = tmp_path / "entrypoints/verl_node/__main__.py"

    def revision() -> str:
        staged = context.stage(CPU, "base:1", {})
        written = json.loads((staged.folder / "toolkit/image.json").read_text())
        assert written == staged.manifest
        return str(written["toolkit"])

    first = revision()
    edited.touch()
    touched = revision()
    edited.write_text(edited.read_text() + "\n")

    assert touched == first
    assert revision() != first


@pytest.mark.parametrize(
    ("variant", "base", "present", "used"),
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
def test_a_present_base_is_used_without_a_pull(
    variant: str, base: str, present: set[str], used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_image, "find", lambda reference: BASE if reference in present else None)
    monkeypatch.setattr(base_image, "pull", lambda *_: pytest.fail("nothing has to be fetched"))
    site = Site(base_mirror="mirror.example")

    assert fetch.fetch_base(CATALOG.variants[variant], ENGINE, base, site)[0] == used


def test_a_pinned_base_is_pulled_even_if_its_tag_is_present(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tag may be another image by now; it is used only if no registry answers."""
    variant, pulled = replace(CATALOG.variants["rocm6.2"], base_digest="sha256:" + "1" * 64), list[str]()
    monkeypatch.setattr(base_image, "find", lambda reference: BASE if reference == variant.base else None)

    def pull(_: Engine, reference: str) -> None:
        pulled.append(reference)
        raise BaseUnreachable(reference, "no such host")

    monkeypatch.setattr(base_image, "pull", pull)
    monkeypatch.setattr(fetch, "get", lambda _: BASE)

    assert fetch.fetch_base(variant, ENGINE, "", Site())[0] == variant.base
    assert pulled == [variant.base_pinned]


DOCKER = """#!/bin/sh
echo '#5 [1/2] FROM base:1'; echo '#5 DONE 0.1s'
echo '#6 [2/2] RUN true'; echo '#6 DONE 0.2s'
"""


def test_a_build_queries_no_fact_of_its_plan_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = {"Id": "sha256:1", "Size": 7, "RootFS": {"Layers": ["sha256:a"]}}
    made = {"Id": "sha256:2", "Size": 9, "RootFS": {"Layers": ["sha256:a", "sha256:b"]}}
    queries: list[tuple[str, ...]] = []

    def call(name: str, reference: str) -> Any:
        queries.append((name, reference))
        return {"base:1": base, "n:1": made}[reference] if name == "inspect_image" else []

    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setattr(daemon, "_call", call)
    monkeypatch.setattr(context, "STAGED", tmp_path / "staged")
    monkeypatch.setattr(fetch, "fetch_torch", lambda *_: [])
    monkeypatch.setattr(build, "choose", lambda: replace(ENGINE, client=str(tmp_path / "docker")))
    for module in (inputs, record):
        monkeypatch.setattr(module, "daemon_version", lambda: {"Version": "20.10.24"})
    monkeypatch.setattr(record, "RECORDS", tmp_path / "records")
    monkeypatch.setattr(inputs.record_built, "__defaults__", (tmp_path / "built",))
    monkeypatch.setattr(store.read, "__defaults__", (tmp_path,))
    monkeypatch.setattr(store.write, "__defaults__", (tmp_path, ""))

    plan = build.resolve(build.BuildRequest(CPU, ["n:1"], "base:1"), Site())
    queries.clear()
    result = builder.run(plan, [], Progress(), Commands())

    assert result.image.id == "sha256:2"
    assert sorted(queries) == [("history", "sha256:1"), ("history", "sha256:2"), ("inspect_image", "n:1")]
    assert json.loads((tmp_path / "n_1.json").read_text())["base_size"] == 7
    assert (tmp_path / "records/2.json").exists()
