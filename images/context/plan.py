"""Build plan: everything about a build that is resolved before it runs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property

from images.catalog.variant import Variant
from images.context import inputs
from images.context.context import BuildContext
from images.context.verl_source import Source
from images.engine.buildah import Buildah, source_date_epoch
from images.engine.client import Engine
from images.engine.daemon import Inspected

OCI = "org.opencontainers.image"


@dataclass(frozen=True)
class BuildPlan:
    """One build: base image (by ``reference``), staged context, labels, and all inputs with their digests.

    docker builds, or ``buildah`` if the build is reproducible; ``verl`` is the source that replaces a release of verl.
    """

    variant: Variant
    tags: Sequence[str]
    engine: Engine
    reference: str
    base: Inspected
    context: BuildContext
    labels: Mapping[str, str]
    inputs: Mapping[str, str]
    verl: Source | None = None
    buildah: Buildah | None = None

    @cached_property
    def key(self) -> str:
        """One digest of all inputs."""
        return inputs.key(self.inputs)

    def docker_argv(self, site_flags: Sequence[str]) -> list[str]:
        """Return the docker command that builds."""
        flags = [word for name in self.tags for word in ("--tag", name)]
        flags += ["--progress", "plain", "--build-arg", f"BASE={self.reference}"]
        labels = label_flags({**self.labels, inputs.LABEL: self.key})
        return self.engine.build_argv([*flags, *site_flags, *labels, str(self.context.folder)])

    def buildah_arguments(self, site_flags: Sequence[str]) -> list[str]:
        """Return the arguments of Buildah.build."""
        return [*label_flags(self.labels), *site_flags, str(self.context.folder)]

    def text(self) -> str:
        """Return the plan as lines for people."""
        built = inputs.find_built(self.key)
        argv = ["buildah", "bud", *self.buildah_arguments([])] if self.buildah else self.docker_argv([])
        return "\n".join([
            f"variant  {self.variant.name}: {self.variant.summary}",
            f"base     {self.reference} ({self.base.id})",
            f"context  {self.context.folder}, {len(self.inputs)} inputs, key {self.key[:12]}",
            f"tags     {' '.join(self.tags)}",
            f"builder  {self.buildah or self.engine}",
            f"command  {shlex.join(argv)}",
            f"result   {f'unchanged, {built.id}' if built else 'to be built'}",
        ])  # fmt: skip


def build_labels(reference: str, base: Inspected, toolkit: str) -> dict[str, str]:
    """Return the labels that are known at build time only: the local base and the toolkit's revision.

    As an ARG in the Dockerfile they would invalidate the layers below it.
    """
    labels = {
        "verljob.base": reference,
        f"{OCI}.base.name": reference,
        "verljob.toolkit": toolkit,
        "verljob.base.id": str(base.id),
    }
    for digest in (base.attrs.get("RepoDigests") or [])[:1]:
        labels[f"{OCI}.base.digest"] = digest.partition("@")[2]
    if (time_s := source_date_epoch()) is not None:  # any other time would make each build another image
        labels[f"{OCI}.created"] = datetime.fromtimestamp(time_s, timezone.utc).isoformat()
    return labels


def label_flags(labels: Mapping[str, str]) -> list[str]:
    """Return the labels as arguments of a build command."""
    return [word for name, value in labels.items() for word in ("--label", f"{name}={value}")]
