"""Build plans: a build request, resolved once; what runs and records the build asks nothing again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from images.builds import fetch
from images.builds.bundle import Bundle
from images.builds.site import Site
from images.catalog.variant import Variant
from images.context import context, labels
from images.context import inputs as context_inputs
from images.context.verl_source import Source
from images.engine import buildah
from images.engine.client import Engine, choose
from images.engine.daemon import Inspected
from images.errors import BundleBroken


@dataclass(frozen=True)
class BuildPlan:
    """One build: base, staged context, labels and the key of all inputs.

    ``builder`` names docker or buildah with its version, ``inputs`` are names and digests of all that the image depends
    on, ``buildah`` is its version where the build is reproducible.
    """

    variant: Variant
    engine: Engine
    reference: str
    base: Inspected
    tags: Sequence[str]
    folder: Path
    labels: Mapping[str, str]
    builder: str
    inputs: Mapping[str, str]
    buildah: str = ""

    @property
    def key(self) -> str:
        """One digest over the inputs."""
        return context_inputs.key(self.inputs)

    @property
    def dockerfile(self) -> str:
        """The text of the staged Dockerfile."""
        return (self.folder / "Dockerfile").read_text(encoding="utf-8")

    def docker_argv(self, words: Sequence[str]) -> list[str]:
        """The command of a build by docker; ``words`` are the site's."""
        flags = [word for name in self.tags for word in ("--tag", name)]
        flags += ["--progress", "plain", "--build-arg", f"BASE={self.reference}"]
        given = labels.flags({**self.labels, context_inputs.LABEL: self.key})
        return self.engine.build_argv([*flags, *words, *given, str(self.folder)])

    def buildah_words(self, words: Sequence[str]) -> list[str]:
        """The arguments of a build by buildah; ``words`` are the site's."""
        return [*labels.flags(self.labels), *words, str(self.folder)]

    def text(self) -> str:
        """The plan as lines for people."""
        found = context_inputs.find(self.key)
        return "\n".join([
            f"variant  {self.variant.name}: {self.variant.summary}",
            f"base     {self.reference} ({self.base.id})",
            f"context  {self.folder}, {len(self.inputs)} inputs, key {self.key[:12]}",
            f"tags     {' '.join(self.tags)}",
            f"builder  {self.builder if self.buildah else self.engine}",
            f"result   {f'unchanged, {found.id}' if found else 'to be built'}",
        ])  # fmt: skip


def resolve(
    variant: Variant,
    site: Site,
    tags: Sequence[str],
    *,
    from_base: str = "",
    lock: Path | None = None,
    bundle: Bundle | None = None,
    verl: Source | None = None,
    reproducible: bool = False,
) -> BuildPlan:
    """Fetch base and wheels where they are missing, stage the context, and compute the key of the inputs.

    The arguments are those of ``build``. The caller holds the lock of the variant.
    """
    engine = choose()
    builder = buildah.builder() if reproducible else context_inputs.by_docker(engine)
    if bundle:
        refuse_unfit(bundle, variant, from_base)
        reference, base = fetch.carried_base(bundle, variant, engine, last=tags[0])
    else:
        reference, base = fetch.fetch_base(variant, engine, from_base, site, last=tags[0])
    told: dict[str, str | None] = {}
    wheels = [] if bundle else fetch.torch_of(variant, site)
    folder = context.stage(variant, reference, wheels, lock, verl, told=told)
    if bundle:
        bundle.lay_out(folder)
        told.clear()  # the folder is looked through anew
    found = labels.build_labels(reference, base, folder)
    known = context.staged_digests(folder)
    inputs = context_inputs.inputs(folder, base.id, builder, found, known, told=told)
    known.keep()
    version = buildah.version() if reproducible else ""
    return BuildPlan(variant, engine, reference, base, tags, folder, found, builder, inputs, version)


def refuse_unfit(bundle: Bundle, variant: Variant, from_base: str) -> None:
    """BundleBroken where a bundle is not one for this build."""
    bundle.refuse_another(variant)
    if from_base:
        raise BundleBroken(f"the bundle {bundle.folder} has a base of its own: leave out {from_base}")
