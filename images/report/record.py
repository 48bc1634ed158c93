"""Provenance record of a build: the predicate of SLSA provenance v1 (https://slsa.dev/spec/v1.0/provenance).

One file an image, ``.build/provenance/<hex of its ID>.json``, by the build that first made it. Nothing of a site is in
it: a mirror's or an index's URL may hold a password.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

from images.catalog.variant import Variant
from images.context import inputs as context_inputs
from images.engine.client import Engine
from images.engine.daemon import Inspected, daemon_version
from images.errors import CommandFailed
from images.host.paths import RECORDS, ROOT
from images.host.process import run

BUILD_TYPE = "urn:verl-on-slurm:invoke-build:1"  # docs/images.md, "What is stated of an image", says what it means
BUILDER = "urn:verl-on-slurm:invoke-build"
BASE, TOOLKIT, CHECKOUT = "base", "toolkit/", "checkout"  # names of dependencies


def now() -> str:
    """The time, as in SLSA: UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def write(image_id: str, predicate: dict[str, Any], folder: Path | None = None) -> Path:
    """Keep a build's record, unless an earlier build made the same image."""
    path = _path(image_id, folder)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{uuid4().hex}")
        new.write_text(json.dumps(predicate), encoding="utf-8")
        new.replace(path)
    return path


def read(image_id: str, folder: Path | None = None) -> dict[str, Any] | None:
    """The record of the build that made an image; nothing where that was another checkout's."""
    path = _path(image_id, folder)
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def dependencies(
    variant: Variant, reference: str, base: Inspected, context: Path, inputs: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The materials of a build of ``variant`` on ``base``; ``inputs`` are those of context/inputs.py."""
    files = context_inputs.files(inputs)
    return [_base(base, reference), *_sources(variant), *_files(files), *_verl(context, files), *_checkout()]


def predicate(
    variant: Variant,
    engine: Engine,
    reference: str,
    context: Path,
    made_of: Sequence[Mapping[str, Any]],
    *,
    started: str,
    buildah: str = "",
) -> dict[str, Any]:
    """What is stated of a build that has just ended; ``buildah`` is its version where that built."""
    tool = {"buildah": buildah} if buildah else {"docker": engine.version}
    labels = json.loads((context / "toolkit/image.json").read_text(encoding="utf-8"))
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"platform": variant.platform, "variant": variant.name, "base": reference},
            "internalParameters": {name: labels[name] for name in ("template", "toolkit", "pins")},
            "resolvedDependencies": list(made_of),
        },
        "runDetails": {
            "builder": {"id": BUILDER, "version": {**tool, "engine": daemon_version()["Version"]}},
            "metadata": {"invocationId": f"urn:uuid:{uuid4()}", "startedOn": started, "finishedOn": now()},
        },
    }


def _base(image: Inspected, reference: str) -> dict[str, Any]:
    """By the registry's digest where it has one, else by its ID; its layers are the first of what is built on it."""
    digests = [each.partition("@sha256:")[2] for each in image.attrs.get("RepoDigests") or []]
    facts = {"id": image.id, "layers": image.attrs["RootFS"]["Layers"]}
    digest = next(iter(digests), str(image.id).partition(":")[2])
    return {"name": BASE, "uri": f"docker-image://{reference}", "digest": {"sha256": digest}, "annotations": facts}


def _sources(variant: Variant) -> Iterator[dict[str, Any]]:
    for name, new in variant.replaces.items():
        yield {"name": name, "uri": f"git+{new.repository}@{new.commit}", "digest": {"gitCommit": new.commit}}


def _verl(context: Path, files: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """verl's source where it is no release: all its files by one digest, and where it came from."""
    for facts in context.glob("verl/*.dist-info/direct_url.json"):
        origin = json.loads(facts.read_text(encoding="utf-8"))
        told = "".join(f"{name}\0{files[name]}\n" for name in sorted(files) if name.startswith("verl/"))
        digest = {"sha256": hashlib.sha256(told.encode()).hexdigest()}
        if commit := origin.get("vcs_info", {}).get("commit_id"):
            digest["gitCommit"] = commit
        yield {"name": "verl", "uri": origin["url"], "digest": digest}


def _files(files: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Every file of the context but verl's; of a wheel its name alone: to hash torch would cost each build."""
    for name in sorted(name for name in files if not name.startswith("verl/")):
        if name.endswith(".whl"):
            yield {"name": name, "uri": f"file:{name}"}
        else:
            yield {"name": name, "digest": {"sha256": files[name]}}


def _checkout() -> Iterator[dict[str, Any]]:
    """The commit of this checkout and whether anything in it differs, where it is one of git."""
    try:
        told = run(["git", "-C", str(ROOT), "status", "--porcelain=v2", "--branch"]).splitlines()
    except CommandFailed:  # an unpacked archive, or no git
        return
    changes = [line for line in told if not line.startswith("# ")]
    for line in told:
        name, _, commit = line.removeprefix("# ").partition(" ")
        if name == "branch.oid" and commit != "(initial)":
            yield {"name": CHECKOUT, "digest": {"gitCommit": commit}, "annotations": {"changed": bool(changes)}}


def _path(image_id: str, folder: Path | None) -> Path:
    return (folder or RECORDS) / f"{image_id.rpartition(':')[2]}.json"
