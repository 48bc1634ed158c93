"""Pushes an image: first its bytes to every registry, under a tag made of its ID, then its tags.

The engine uploads. The tags are set by the registries' own API when all of them have all bytes, so a push that is
killed leaves every tag at a whole image, and the next one does what was left. The tag made of the ID stays: without
one a registry's garbage collection would take what is pulled by digest.
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
    """An image of this machine, the repositories that shall have it, and the tags that shall name it there."""

    image: Image
    release: str  # VERL-VARIANT: in a registry it stays what it is
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
        """What `invoke push` is asked for; ``registries`` (HOST[:PORT][/PATH]) and ``tags`` by comma."""
        usual = catalog.names(variant)
        wanted = _words(tags) or [name.rpartition(":")[2] for name in usual]
        repositories = [f"{each.rstrip('/')}/{variant.repository}" for each in _words(registries)]
        return cls(local(image or usual[0]), variant.tag, repositories, wanted, force)

    @property
    def own_tag(self) -> str:
        """The tag that no other image can have: release, variant and 12 digits of the ID."""
        return f"{self.release}-{str(self.image.id).rpartition(':')[2][:12]}"

    def upload(self) -> dict[str, str]:
        """See that every repository has the image; NAME:OWN_TAG → digest. Nothing is sent where it is already there.

        TagTaken before anything is sent, where a release's tag would move. ``docker login`` is the caller's.
        """
        self._refuse_to_move()
        wanted = {name: f"{name}:{self.own_tag}" for name in self.repositories}
        lacking = [reference for name, reference in wanted.items() if not self._digest(name, self.own_tag)]
        for reference in wanted.values():
            self.image.tag(reference)
        if lacking:
            push_references(choose(), lacking)
        digests = {reference: self._digest(name, self.own_tag) for name, reference in wanted.items()}
        if missing := [reference for reference, digest in digests.items() if not digest]:
            raise PushFailed(
                f"{missing[0]} was pushed, and its registry names another image so: who else pushes there?"
            )
        return digests

    def tag(self, uploaded: Mapping[str, str]) -> dict[str, str]:
        """Give what was uploaded its tags, the release's first; NAME:TAG → digest. One that is right is left alone."""
        tagged = {}
        for tag in sorted(self.tags, key=lambda each: each != self.release):
            for reference, digest in uploaded.items():
                name = reference.rpartition(":")[0]
                with Repository(name) as repository:
                    tagged[f"{name}:{tag}"] = repository.tag(digest, tag)
                self.image.tag(f"{name}:{tag}")
        for reference in uploaded:
            daemon().images.remove(reference, noprune=True)  # the name on this machine alone
        return tagged

    def note(self, uploaded: Mapping[str, str], folder: Path = PUSHED) -> list[Path]:
        """Write for each repository a file with NAME@DIGEST, which VERLJOB_IMAGE takes."""
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
        """The digest by which a repository has this very image under a tag; empty where it has none or another."""
        with Repository(name) as repository:
            found = repository.manifest(tag)
            return found.digest if found and str(self.image.id) in referrers.ids(repository, found) else ""

    def _refuse_to_move(self) -> None:
        if self.force or self.release not in self.tags:
            return
        for name in self.repositories:
            with Repository(name) as repository:
                found = repository.manifest(self.release)
            if found and not self._digest(name, self.release):
                raise TagTaken(
                    f"{name}:{self.release} is another image there, {found.digest}, and a release's tag does not move. "
                    "Push under a tag of your own (--tag NAME), or move it with --force."
                )


def push_references(engine: Engine, references: Sequence[str], pause_s: float = PAUSE_S) -> dict[str, str]:
    """Have the engine push references side by side, each as often as needed up to ATTEMPTS; reference → digest.

    A refused login is not tried again. A client goes on to its end where this process is killed: the engine would
    forget a layer that the registry has taken and whose answer it has not read, and send it once more the next time.
    """
    digests: dict[str, str] = {}
    for attempt in range(1, ATTEMPTS + 1):
        left = [reference for reference in references if reference not in digests]
        for reference, outcome in zip(left, run_parallel([[engine.client, "push", each] for each in left])):
            if isinstance(outcome, CommandFailed):
                _refuse_to_go_on(reference, outcome, attempt)
            else:
                digests[reference] = digest_in(outcome)
        if len(digests) == len(references):
            break
        time.sleep(pause_s * 2 ** (attempt - 1))
    return digests


def _refuse_to_go_on(reference: str, failure: CommandFailed, attempt: int) -> None:
    final = re.search("denied|unauthorized|authentication|no basic auth", failure.said, re.IGNORECASE)
    if final or attempt == ATTEMPTS:
        client = failure.argv[0]
        fix = f"`{client} login` first" if final else "is the registry there, and does it speak https?"
        raise PushFailed(f"{reference} was not taken, attempt {attempt}; {fix}\n{failure.said[-600:]}") from failure


def digest_in(said: str) -> str:
    """The digest in what `docker push` said."""
    found = re.search(r"digest: (sha256:[0-9a-f]{64})", said)
    if not found:
        raise PushFailed(f"docker push ended well but named no digest: {said[-300:]}")
    return found.group(1)


def _words(by_comma: str) -> list[str]:
    return [word.strip() for word in by_comma.split(",") if word.strip()]
