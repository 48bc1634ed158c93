"""Provenance record of a build: the predicate of SLSA provenance v1 (https://slsa.dev/spec/v1.0/provenance).

One file per image, ``.build/provenance/<hex of its ID>.json``, written by the build that first made it. It contains no
site settings: the URL of a mirror or an index may have a password.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

from images.context import inputs
from images.context.plan import BuildPlan
from images.context.verl_source import Source
from images.engine.daemon import daemon_version
from images.errors import CommandFailed
from images.host.paths import RECORDS, ROOT
from images.host.process import run

BUILD_TYPE = "urn:verl-on-slurm:invoke-build:1"  # defined in docs/images.md, "Attestations"
BUILDER = "urn:verl-on-slurm:invoke-build"
BASE, TOOLKIT, CHECKOUT = "base", "toolkit/", "checkout"  # names of dependencies


def now() -> str:
    """Return the time in SLSA's format: UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def write(image_id: str, predicate: dict[str, Any], folder: Path | None = None) -> Path:
    """Write the record of a build, unless an earlier build made the same image."""
    path = _path(image_id, folder)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{uuid4().hex}")
        new.write_text(json.dumps(predicate), encoding="utf-8")
        new.replace(path)
    return path


def read(image_id: str, folder: Path | None = None) -> dict[str, Any] | None:
    """Read the record of the build that made an image; None if another checkout built it."""
    path = _path(image_id, folder)
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def dependencies(plan: BuildPlan) -> list[dict[str, Any]]:
    """Return the resolved dependencies of a build."""
    files = inputs.files(plan.inputs)
    return [_base(plan), *_sources(plan), *_files(files), *_verl(plan.verl, files), *_checkout()]


def predicate(plan: BuildPlan, resolved: Sequence[Mapping[str, Any]], started: str) -> dict[str, Any]:
    """Return the predicate of a build that has just ended; ``resolved`` are its dependencies."""
    tool = {"buildah": plan.buildah.version} if plan.buildah else {"docker": plan.engine.version}
    variant, manifest = plan.variant, plan.context.manifest
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"platform": variant.platform, "variant": variant.name, "base": plan.reference},
            "internalParameters": {name: manifest[name] for name in ("template", "toolkit", "pins")},
            "resolvedDependencies": list(resolved),
        },
        "runDetails": {
            "builder": {"id": BUILDER, "version": {**tool, "engine": daemon_version()["Version"]}},
            "metadata": {"invocationId": f"urn:uuid:{uuid4()}", "startedOn": started, "finishedOn": now()},
        },
    }


def _base(plan: BuildPlan) -> dict[str, Any]:
    """The base by the registry's digest, else by its ID, with its layers, which are the first of the image's."""
    image = plan.base
    digests = [each.partition("@sha256:")[2] for each in image.attrs.get("RepoDigests") or []]
    facts = {"id": image.id, "layers": image.attrs["RootFS"]["Layers"]}
    digest = next(iter(digests), image.id.partition(":")[2])
    uri = f"docker-image://{plan.reference}"
    return {"name": BASE, "uri": uri, "digest": {"sha256": digest}, "annotations": facts}


def _sources(plan: BuildPlan) -> Iterator[dict[str, Any]]:
    for name, new in plan.variant.replaces.items():
        yield {"name": name, "uri": f"git+{new.repository}@{new.commit}", "digest": {"gitCommit": new.commit}}


def _verl(source: Source | None, files: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """verl's source, if it is not a release: one digest of all its files, and its origin."""
    if source:
        listed = "".join(f"{name}\0{files[name]}\n" for name in sorted(files) if name.startswith("verl/"))
        digest = {"sha256": hashlib.sha256(listed.encode()).hexdigest()}
        if source.commit:
            digest["gitCommit"] = source.commit
        yield {"name": "verl", "uri": source.url, "digest": digest}


def _files(files: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Every file of the context except verl's; wheels without a digest, since hashing torch would delay each build."""
    for name in sorted(name for name in files if not name.startswith("verl/")):
        if name.endswith(".whl"):
            yield {"name": name, "uri": f"file:{name}"}
        else:
            yield {"name": name, "digest": {"sha256": files[name]}}


def _checkout() -> Iterator[dict[str, Any]]:
    """The commit of this checkout, and whether a file of it differs; nothing if git does not know it."""
    try:
        commit, changes = checkout_state()
    except CommandFailed:  # an unpacked archive, or no git
        return
    if commit:
        yield {"name": CHECKOUT, "digest": {"gitCommit": commit}, "annotations": {"changed": bool(changes)}}


def checkout_state(root: Path = ROOT) -> tuple[str, list[str]]:
    """Return the commit of a checkout, empty before its first, and the paths that differ from it."""
    lines = run(["git", "-C", str(root), "status", "--porcelain=v2", "--branch"]).splitlines()
    commits = [line.removeprefix("# branch.oid ") for line in lines if line.startswith("# branch.oid ")]
    commit = commits[0] if commits and commits[0] != "(initial)" else ""
    return commit, [line.rpartition(" ")[2] for line in lines if not line.startswith("# ")]


def _path(image_id: str, folder: Path | None) -> Path:
    return (folder or RECORDS) / f"{image_id.rpartition(':')[2]}.json"
