"""Record of a build, and the SLSA statement made from it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.context import context
from images.context import inputs as context_inputs
from images.context.plan import BuildPlan
from images.engine.buildah import Buildah
from images.engine.client import Engine
from images.engine.daemon import Inspected
from images.errors import NotTrusted
from images.provenance import slsa
from images.report import record

NAME, DIGEST = "r.example/team/verl.rocm", "sha256:" + "ab" * 32
BASE = Inspected(
    {
        "Id": "sha256:" + "1" * 64,
        "RepoDigests": ["mirror.example/rocm@sha256:" + "2" * 64],
        "RootFS": {"Layers": ["sha256:" + "3" * 64]},
    }
)


@pytest.fixture
def predicate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, object]:
    """Predicate of a variant with a git source, built with a site whose URLs hold passwords."""
    monkeypatch.setattr(record, "daemon_version", lambda: {"Version": "20.10.24"})
    monkeypatch.setattr(context, "STAGED", tmp_path)
    variant = Catalog.read().variants["rocm6.2"]
    wheel = tmp_path / "torch-1-cp39-cp39-linux_x86_64.whl"
    wheel.write_bytes(b"wheel")
    staged = context.stage(variant, "mirror.example/rocm:6", {f"wheelhouse/{wheel.name}": wheel})
    Site(pip_index="https://somebody:hunter2@index.example").secrets(variant, tmp_path)
    inputs = context_inputs.collect(staged.folder, BASE.id, "docker", {}, staged.entries)
    engine = Engine("/usr/bin/docker", "20.10.24", False)
    plan = BuildPlan(variant, [], engine, "mirror.example/rocm:6", BASE, staged, {}, inputs)
    return record.predicate(plan, record.dependencies(plan), record.now())


def test_statement_names_all_inputs_of_the_build(predicate: dict[str, object]) -> None:
    content = slsa.statement(predicate, NAME, DIGEST)
    stated = json.loads(content)
    definition, details = stated["predicate"]["buildDefinition"], stated["predicate"]["runDetails"]
    parts = {each["name"]: each for each in definition["resolvedDependencies"]}

    assert stated["_type"] == "https://in-toto.io/Statement/v1"
    assert stated["subject"] == [{"name": NAME, "digest": {"sha256": "ab" * 32}}]
    assert stated["predicateType"] == "https://slsa.dev/provenance/v1"
    assert definition["externalParameters"]["variant"] == "rocm6.2"
    assert parts["base"]["digest"] == {"sha256": "2" * 64}
    assert parts["base"]["annotations"]["layers"] == ["sha256:" + "3" * 64]
    assert parts["vllm"]["digest"] == {"gitCommit": "fd47e57f4b0d5f7920903490bce13bc9e49d8dba"}
    assert {"Dockerfile", "lock.txt", "steps/guard.py", "toolkit/entrypoint.sh", "toolkit/image.json"} <= set(parts)
    assert details["builder"]["id"] == record.BUILDER
    assert details["metadata"]["startedOn"] <= details["metadata"]["finishedOn"]
    assert b"hunter2" not in content


def test_read_returns_what_statement_wrote(predicate: dict[str, object]) -> None:
    subjects, read = slsa.read(slsa.statement(predicate, NAME, DIGEST))

    assert subjects == [DIGEST]
    assert read == json.loads(json.dumps(predicate))


def test_first_record_of_an_image_is_kept(tmp_path: Path) -> None:
    for number in (1, 2):
        record.write(DIGEST, {"number": number}, tmp_path)

    assert record.read(DIGEST, tmp_path) == {"number": 1}
    assert len(list(tmp_path.iterdir())) == 1


def test_image_of_another_checkout_has_no_record(tmp_path: Path) -> None:
    assert record.read(DIGEST, tmp_path) is None


@pytest.mark.parametrize(
    "changed", [{"predicateType": "https://slsa.dev/provenance/v0.2"}, {"subject": []}, {"_type": "x"}]
)
def test_statement_of_another_type_is_refused(predicate: dict[str, object], changed: dict[str, object]) -> None:
    stated = json.loads(slsa.statement(predicate, NAME, DIGEST))

    with pytest.raises(NotTrusted, match="the provenance is "):
        slsa.read(json.dumps({**stated, **changed}).encode())


@pytest.mark.parametrize("content", [b"not json", b"[]", b"{}", b'{"unknown": 1}'])
def test_content_that_is_no_statement_is_refused(content: bytes) -> None:
    with pytest.raises(NotTrusted, match="not an in-toto statement"):
        slsa.read(content)


def test_statement_of_another_build_type_is_refused(predicate: dict[str, object]) -> None:
    stated = json.loads(slsa.statement(predicate, NAME, DIGEST))
    stated["predicate"]["buildDefinition"]["buildType"] = "https://example.org/other"

    with pytest.raises(NotTrusted, match=r"of https://example\.org/other, not a"):
        slsa.read(json.dumps(stated).encode())


@pytest.mark.usefixtures("predicate")
def test_record_of_a_buildah_build_names_buildah() -> None:
    docker, variant = Engine("/usr/bin/docker", "20.10.24", False), Catalog.read().variants["rocm6.2"]
    plan = BuildPlan(variant, [], docker, "base:1", BASE, context.stage(variant, "base:1", {}), {}, {})

    made = record.predicate(replace(plan, buildah=Buildah("1.28.2", 0)), [], record.now())

    assert made["runDetails"]["builder"]["version"] == {"buildah": "1.28.2", "engine": "20.10.24"}
