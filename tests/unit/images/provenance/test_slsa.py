"""What a build records, and the statement that is made of it."""

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
    """Of the variant that has a source of its own, with a site whose URLs hold passwords."""
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


def test_a_build_records_all_that_the_image_was_made_of(predicate: dict[str, object]) -> None:
    content = slsa.statement(predicate, NAME, DIGEST)
    told = json.loads(content)
    definition, details = told["predicate"]["buildDefinition"], told["predicate"]["runDetails"]
    parts = {each["name"]: each for each in definition["resolvedDependencies"]}

    assert told["_type"] == "https://in-toto.io/Statement/v1"
    assert told["subject"] == [{"name": NAME, "digest": {"sha256": "ab" * 32}}]
    assert told["predicateType"] == "https://slsa.dev/provenance/v1"
    assert definition["externalParameters"]["variant"] == "rocm6.2"
    assert parts["base"]["digest"] == {"sha256": "2" * 64}
    assert parts["base"]["annotations"]["layers"] == ["sha256:" + "3" * 64]
    assert parts["vllm"]["digest"] == {"gitCommit": "fd47e57f4b0d5f7920903490bce13bc9e49d8dba"}
    assert {"Dockerfile", "lock.txt", "steps/guard.py", "toolkit/entrypoint.sh", "toolkit/image.json"} <= set(parts)
    assert details["builder"]["id"] == record.BUILDER
    assert details["metadata"]["startedOn"] <= details["metadata"]["finishedOn"]
    assert b"hunter2" not in content


def test_what_is_written_is_what_is_read(predicate: dict[str, object]) -> None:
    subjects, read = slsa.read(slsa.statement(predicate, NAME, DIGEST))

    assert subjects == [DIGEST]
    assert read == json.loads(json.dumps(predicate))


def test_the_first_record_of_an_image_stays(tmp_path: Path) -> None:
    for number in (1, 2):
        record.write(DIGEST, {"number": number}, tmp_path)

    assert record.read(DIGEST, tmp_path) == {"number": 1}
    assert len(list(tmp_path.iterdir())) == 1


def test_an_image_of_another_checkout_has_no_record(tmp_path: Path) -> None:
    assert record.read(DIGEST, tmp_path) is None


@pytest.mark.parametrize(
    "changed", [{"predicateType": "https://slsa.dev/provenance/v0.2"}, {"subject": []}, {"_type": "x"}]
)
def test_a_statement_of_another_kind_is_no_provenance(predicate: dict[str, object], changed: dict[str, object]) -> None:
    told = json.loads(slsa.statement(predicate, NAME, DIGEST))

    with pytest.raises(NotTrusted, match="the provenance is "):
        slsa.read(json.dumps({**told, **changed}).encode())


@pytest.mark.parametrize("content", [b"not json", b"[]", b"{}", b'{"unknown": 1}'])
def test_what_is_no_statement_is_refused(content: bytes) -> None:
    with pytest.raises(NotTrusted, match="no in-toto statement"):
        slsa.read(content)


def test_another_builders_statement_is_not_ours(predicate: dict[str, object]) -> None:
    told = json.loads(slsa.statement(predicate, NAME, DIGEST))
    told["predicate"]["buildDefinition"]["buildType"] = "https://example.org/other"

    with pytest.raises(NotTrusted, match=r"of https://example\.org/other, not a"):
        slsa.read(json.dumps(told).encode())


@pytest.mark.usefixtures("predicate")
def test_a_build_of_buildahs_says_so() -> None:
    docker, variant = Engine("/usr/bin/docker", "20.10.24", False), Catalog.read().variants["rocm6.2"]
    plan = BuildPlan(variant, [], docker, "base:1", BASE, context.stage(variant, "base:1", {}), {}, {})

    told = record.predicate(replace(plan, buildah=Buildah("1.28.2", 0)), [], record.now())

    assert told["runDetails"]["builder"]["version"] == {"buildah": "1.28.2", "engine": "20.10.24"}
