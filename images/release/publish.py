"""Publishes a release: a candidate of every variant first, then the tags of all, then the text.

A failed or killed run before the tags moves none. A run that is killed while it sets tags leaves some variants with
their tag of this version and some without; the next run sets the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from packaging.version import Version

from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.engine.daemon import architecture
from images.errors import AccessDenied, ImageError, NotTrusted, ReleaseFailed, TagTaken
from images.registry.client import Repository, split_reference
from images.release import candidate, notes
from images.release.notes import Published
from images.release.release import Release

FINAL = re.compile(r"-v([0-9]+(?:\.[0-9]+)*)$")  # version in the tag of an image of a release that is no pre-release
ALL = "all"

PrintLine = Callable[[str], None]


def choose(catalog: Catalog, names: str = ALL) -> tuple[list[Variant], dict[str, str]]:
    """Return the variants to publish, ALL or those of ``names`` (by comma), and the reasons of those left out."""
    named = dict.fromkeys(name.strip() for name in names.split(","))
    variants = catalog.of_platform() if names == ALL else [catalog.find(variant=name) for name in named]
    reasons = {variant.name: reason for variant in variants if (reason := _reason_to_leave_out(variant))}
    if chosen := [variant for variant in variants if variant.name not in reasons]:
        return chosen, reasons
    raise ReleaseFailed(f"no variant can be published: {'; '.join(map(': '.join, reasons.items()))}")


def _reason_to_leave_out(variant: Variant) -> str:
    if variant.architecture != architecture():
        return f"it is for {variant.architecture}, and this engine builds for {architecture()}"
    if not base_is_public(variant):
        return f"no registry serves its base {variant.base} without a login"
    return ""


def base_is_public(variant: Variant) -> bool:
    """Whether a registry serves the base without a login; a base made of Debian's packages counts as public.

    Raise RegistryFailed if the registry does not answer: that is no reason to leave a variant out of a release.
    """
    if variant.base_made:
        return True
    name, tag = split_reference(variant.base)
    try:
        with Repository(name, anonymous=True) as repository:
            return repository.manifest(variant.base_digest or tag) is not None
    except AccessDenied:
        return False


def publish(
    release: Release, variants: Sequence[Variant], catalog: Catalog, site: Site, print_line: PrintLine
) -> list[Published]:
    """Publish the variants; raise ReleaseFailed, with no tag set, if one has no candidate in the end.

    Every other variant gets its candidate nevertheless, which the next run uses.
    """
    found = find_candidates(release, variants, print_line)
    require_free_tags(release, variants, found)
    failures: dict[str, ImageError] = {}
    for variant in variants:
        if found[variant.name]:
            print_line(f"{variant.name}: {found[variant.name]} is already in {release.registry}")
            continue
        try:
            found[variant.name] = candidate.make(release, variant, catalog.names(variant), site)
            print_line(f"{variant.name}: {found[variant.name]} is pushed and signed, without a tag for users yet")
        except ImageError as error:
            failures[variant.name] = error
            print_line(f"{variant.name}: FAILED: {error}")
    if failures:
        listed = "".join(f"\n  {name}: {str(error).splitlines()[0]}" for name, error in failures.items())
        raise ReleaseFailed(
            f"{len(failures)} of {len(variants)} images of v{release.version} failed, and no tag was set. The same "
            f"command again continues with these, and pushes none of the others twice:{listed}"
        )
    published = [candidate.describe(release, variant, found[variant.name]) for variant in variants]
    set_tags(release, variants, catalog, found, print_line)
    return published


def find_candidates(release: Release, variants: Sequence[Variant], print_line: PrintLine) -> dict[str, str]:
    """Return the digest of every variant's candidate; empty if it has none, or one that is not trusted."""
    found = {}
    for variant in variants:
        try:
            found[variant.name] = candidate.find(release, variant)
        except NotTrusted as error:
            found[variant.name] = ""
            print_line(f"{variant.name}: built again, since the image of an earlier run is not trusted: {error}")
    return found


def require_free_tags(release: Release, variants: Sequence[Variant], digests: Mapping[str, str]) -> None:
    """Raise TagTaken if a variant's tag of this version is already another image than the one with its digest."""
    for variant in variants:
        with Repository(release.repository(variant)) as repository:
            present = repository.manifest(release.tag(variant))
        if present and present.digest != digests[variant.name]:
            raise TagTaken(
                f"{release.repository(variant)}:{release.tag(variant)} is published already as {present.digest}, which "
                f"is not an image of this commit. Raise `version` in pyproject.toml: a published version never changes."
            )


def set_tags(
    release: Release, variants: Sequence[Variant], catalog: Catalog, digests: Mapping[str, str], print_line: PrintLine
) -> None:
    """Set the tags of the version, then `latest` of the platforms whose newest final version this one is."""
    require_free_tags(release, variants, digests)
    for variant in variants:
        with Repository(release.repository(variant)) as repository:
            repository.tag(digests[variant.name], release.tag(variant))
            print_line(f"{repository.name}:{release.tag(variant)} {digests[variant.name]}")
    for variant in filter(catalog.is_default, variants):
        with Repository(release.repository(variant)) as repository:
            if is_newest(release.version, repository.tags()):
                repository.tag(digests[variant.name], "latest")
                print_line(f"{repository.name}:latest {digests[variant.name]}")
            else:
                print_line(
                    f"{repository.name}:latest stays: it has a newer version, or v{release.version} is not final"
                )


def is_newest(version: str, tags: Sequence[str]) -> bool:
    """Whether a version is final, and none of the final versions in ``tags`` is newer."""
    others = [Version(match[1]) for tag in tags if (match := FINAL.search(tag))]
    return not Version(version).is_prerelease and all(Version(version) >= other for other in others)


def write_text(release: Release, images: Sequence[Published], left_out: Mapping[str, str]) -> list[str]:
    """Write the text of the release and the table of its images to the release's folder, and return the files."""
    texts = {
        "notes.md": notes.text(release.changes, images, left_out),
        "images.md": notes.table(images, left_out) + "\n",
    }
    for name, content in texts.items():
        (release.folder / name).write_text(content, encoding="utf-8")
    return [str(release.folder / name) for name in (*texts, release.public_key.name)]
