"""Pushes an image: first its bytes to every registry, under a tag made of its ID, then its tags.

The engine uploads. The tags are set through the registries' API once all registries have all bytes, so a push that is
killed leaves every tag at a complete image, and the next push does the rest. The tag made of the ID stays: without a
tag, a registry's garbage collection would delete an image that is pulled by digest.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from docker.models.images import Image

from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.engine.client import Engine, choose
from images.engine.daemon import daemon, local
from images.errors import CommandFailed, PushFailed, TagTaken
from images.host.paths import PUSHED
from images.host.process import run_parallel
from images.registry import referrers
from images.registry.client import Repository

ATTEMPTS = 3
PAUSE_S = 2.0  # doubled after each attempt


@dataclass(frozen=True)
class Push:
    """An image of this host, the repositories to push it to, and its tags in each of them."""

    image: Image
    release: str  # VERL-VARIANT: this tag never moves to another image
    repositories: Sequence[str]
    tags: Sequence[str]
    force: bool = False

    @classmethod
    def from_flags(
        cls,
        variant: Variant,
        catalog: Catalog,
        registries: str,
        *,
        image: str = "",
        tags: str = "",
        force: bool = False,
    ) -> Push:
        """Make the push for flags of `invoke push`; ``registries`` (HOST[:PORT][/PATH]) and ``tags`` by comma."""
        names = catalog.names(variant)
        repositories = [f"{registry.rstrip('/')}/{variant.repository}" for registry in _split(registries)]
        chosen_tags = _split(tags) or [name.rpartition(":")[2] for name in names]
        return cls(local(image or names[0]), variant.tag, repositories, chosen_tags, force)

    @property
    def unique_tag(self) -> str:
        """A tag that no other image can have: release, variant and 12 digits of the ID."""
        return f"{self.release}-{str(self.image.id).rpartition(':')[2][:12]}"

    def upload(self) -> dict[str, str]:
        """Upload the image to the repositories that do not have it; NAME:UNIQUE_TAG → digest.

        Raise TagTaken before anything is sent if a release's tag would move. ``docker login`` is the caller's.
        """
        self._require_free_release()
        references = {name: f"{name}:{self.unique_tag}" for name in self.repositories}
        missing = [reference for name, reference in references.items() if not self._digest(name, self.unique_tag)]
        for reference in references.values():
            self.image.tag(reference)
        if missing:
            push_references(choose(), missing)
        digests = {reference: self._digest(name, self.unique_tag) for name, reference in references.items()}
        if replaced := [reference for reference, digest in digests.items() if not digest]:
            raise PushFailed(
                f"{replaced[0]} was pushed, but now names another image in its registry: does anyone else push there?"
            )
        return digests

    def tag(self, uploaded: Mapping[str, str]) -> dict[str, str]:
        """Set the tags of an uploaded image, the release's first; NAME:TAG → digest. A correct tag is left as it is."""
        tagged = {}
        for tag in sorted(self.tags, key=lambda tag: tag != self.release):
            for reference, digest in uploaded.items():
                name = reference.rpartition(":")[0]
                with Repository(name) as repository:
                    tagged[f"{name}:{tag}"] = repository.tag(digest, tag)
                self.image.tag(f"{name}:{tag}")
        for reference in uploaded:
            daemon().images.remove(reference, noprune=True)  # only the name on this host
        return tagged

    def write_digest_files(self, uploaded: Mapping[str, str], folder: Path = PUSHED) -> list[Path]:
        """Write a file with NAME@DIGEST for each repository, a value for VERLJOB_IMAGE."""
        paths = []
        for reference, digest in uploaded.items():
            name = reference.rpartition(":")[0]
            path = folder / re.sub(r"[^\w.-]", "_", name) / f"{self.release}.digest"
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_suffix(".new")
            new.write_text(f"{name}@{digest}\n", encoding="utf-8")
            paths.append(new.replace(path))
        return paths

    def _digest(self, name: str, tag: str) -> str:
        """Digest of a tag in a repository if it names this image, else empty."""
        with Repository(name) as repository:
            manifest = repository.manifest(tag)
            same = manifest and str(self.image.id) in referrers.image_ids(repository, manifest)
            return manifest.digest if manifest and same else ""

    def _require_free_release(self) -> None:
        if self.force or self.release not in self.tags:
            return
        for name in self.repositories:
            with Repository(name) as repository:
                manifest = repository.manifest(self.release)
            if manifest and not self._digest(name, self.release):
                raise TagTaken(
                    f"{name}:{self.release} is already another image, {manifest.digest}, and a release's tag does not "
                    "move. Push under another tag (--tag NAME), or move it with --force."
                )


def push_references(engine: Engine, references: Sequence[str], pause_s: float = PAUSE_S) -> dict[str, str]:
    """Have the engine push references in parallel, with up to ATTEMPTS attempts for each; reference → digest.

    A refused login is not retried. A client continues if this process is killed: otherwise the engine would forget a
    layer that the registry has accepted but whose response it has not read, and send it again the next time.
    """
    digests: dict[str, str] = {}
    for attempt in range(1, ATTEMPTS + 1):
        left = [reference for reference in references if reference not in digests]
        for reference, outcome in zip(left, run_parallel([[engine.client, "push", name] for name in left])):
            if isinstance(outcome, CommandFailed):
                _raise_if_final(reference, outcome, attempt)
            else:
                digests[reference] = _pushed_digest(outcome)
        if len(digests) == len(references):
            break
        time.sleep(pause_s * 2 ** (attempt - 1))
    return digests


def _raise_if_final(reference: str, failure: CommandFailed, attempt: int) -> None:
    refused = re.search("denied|unauthorized|authentication|no basic auth", failure.output, re.IGNORECASE)
    if refused or attempt == ATTEMPTS:
        client = failure.argv[0]
        fix = f"`{client} login` first" if refused else "is the registry up, and does it use https?"
        raise PushFailed(
            f"the push of {reference} failed, attempt {attempt}; {fix}\n{failure.output[-600:]}"
        ) from failure


def _pushed_digest(output: str) -> str:
    """Read the digest from the output of `docker push`."""
    match = re.search(r"digest: (sha256:[0-9a-f]{64})", output)
    if not match:
        raise PushFailed(f"docker push succeeded but printed no digest: {output[-300:]}")
    return match.group(1)


def _split(by_comma: str) -> list[str]:
    return [part.strip() for part in by_comma.split(",") if part.strip()]
