"""Tasks `image.*`: variants, pins, files, SBOM and provenance of images."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from invoke import Collection, Context, task

from images.builds import bundle as bundles
from images.builds import prune, site_settings
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.contents import diff, table
from images.engine import base_image, client
from images.export import export
from images.host import paths
from images.pins import locks
from images.pins import pins as all_pins


@task(name="list", help={"space": "an image: show its disk use by layer and package"})
def show_images(_: Context, space: str = "") -> None:
    """Show the variants with their pins and images."""
    print(table.space(space) if space else table.table(Catalog.read()), flush=True)


@task(name="site", help={"site": "site file, default $VERLJOB_SITE"})
def show_site(_: Context, site: str = "") -> None:
    """Show the site settings and where each is set: flags of `build`, environment, site file."""
    found = site_settings.settings(site)
    site_settings.refuse_missing(found)
    print(site_settings.table(found), flush=True)


@task(name="lock", help={"variant": "one variant, default all"})
def lock_variant(_: Context, variant: str = "") -> None:
    """Resolve the dependencies of a variant's packages again after a pin changed; needs a package index."""
    catalog = Catalog.read()
    chosen = [locks.write(catalog.find(variant=variant))] if variant else locks.write_all(catalog)
    print("\n".join(map(str, [*chosen, locks.update_requirements(catalog)])), flush=True)


@task(name="pins", help={"check": "only read files", "update": "query indexes, registries and mirrors again"})
def show_pins(_: Context, check: bool = False, update: bool = False) -> None:
    """Show what is pinned and what is not known yet; exits with 1 if a required pin is missing."""
    catalog = Catalog.read()
    for line in all_pins.update(catalog) if update else ():
        print(line, flush=True)
    print(
        all_pins.check(catalog) if check or not update else "review: git diff images/, then invoke render", flush=True
    )


@task(
    name="bundle",
    help={
        "output": "an empty or a new folder",
        "base": "another base, such as a mirror's copy",
        "site": "site file, default $VERLJOB_SITE",
    },
)
def make_bundle(_: Context, *, variant: str, output: str, base: str = "", site: str = "") -> None:
    """Write all downloads of a variant's build into a folder, for `build --bundle` without a network."""
    chosen = Catalog.read().find(variant=variant)
    print(str(bundles.make(chosen, Site.read(site), Path(output), base=base)), flush=True)


@task(name="diff", help={"output": "file for all differences; JSON if its name ends in .json"})
def compare_images(_: Context, a: str, b: str, output: str = "") -> None:
    """Show the differences between two local images: packages, files, sizes."""
    found = diff.compare(a, b)
    if output:
        diff.write(found, Path(output))
    print(diff.text(found), flush=True)


@task(
    name="export",
    help={
        "format": "comma-separated: docker-archive, oci-archive, squashfs",
        "gpus": "the --gpus of the build",
        "image": "a local image, default the variant's",
        "output": "folder, default .build/export/VARIANT",
    },
)
def export_image(
    _: Context,
    *,
    format: str,
    platform: str = "",
    variant: str = "",
    rollout: str = "",
    gpus: str = "",
    image: str = "",
    output: str = "",
) -> None:
    """Export an image to files, and print their names."""
    catalog = Catalog.read()
    chosen, formats = catalog.find(platform, variant, rollout, gpus), export.parse_formats(format)
    folder = Path(output) if output else paths.EXPORTS / chosen.name
    for path in export.export(image or catalog.names(chosen)[0], formats, folder):
        print(str(path), flush=True)


@task(name="prune", help={"yes": "remove them"})
def prune_images(_: Context, yes: bool = False) -> None:
    """Show, or remove, images and build cache of this toolkit that no variant of the catalog uses any more."""
    old = prune.find(Catalog.read())
    print(prune.remove(old) if yes else prune.table(old), flush=True)


@task(name="sbom", help={"image": "a local image", "output": "folder, default .build/attestations"})
def write_sbom(_: Context, image: str = "verl.cpu:latest", output: str = "") -> None:
    """Write the SBOM of an image, and its provenance if this checkout built it, and print the files."""
    from images.provenance import attest as provenance_attest

    for path in provenance_attest.write(image, Path(output) if output else paths.ATTESTATIONS):
        print(str(path), flush=True)


@task(name="verify", help={"image": "REGISTRY/NAME:TAG, or with @DIGEST", "key": "public key that must have signed it"})
def verify_image(_: Context, image: str, key: str = "") -> None:
    """Check the signature, SBOM and provenance of an image in its registry; exits with 1 if one is wrong."""
    from images.provenance import verify

    print(verify.verify(image, Path(key) if key else None), flush=True)


@task(
    name="release",
    auto_shortflags=False,
    help={
        "version": "version of pyproject.toml, or its git tag, vVERSION",
        "registry": "HOST[:PORT][/PATH]",
        "key": "private key that signs images, SBOMs and provenance",
        "variants": "by comma; all: those with a public base",
        "output": "folder for the text and the table, default .build/releases/vVERSION",
        "site": "site file, default $VERLJOB_SITE",
    },
)
def release_images(
    _: Context, version: str, *, registry: str, key: str, variants: str = "all", output: str = "", site: str = ""
) -> None:
    """Publish the images of a version: build, smoke test, push by digest, SBOM, signature; then the tags of all."""
    from images.release import publish
    from images.release.release import Release

    catalog, settings = Catalog.read(), Site.read(site)
    release = Release.from_flags(version, registry, key, output)
    chosen, left_out = publish.choose(catalog, variants)
    for name, reason in left_out.items():
        print(f"{name}: left out: {reason}", flush=True)
    images = publish.publish(release, chosen, catalog, settings, partial(print, flush=True))
    print("\n".join(publish.write_text(release, images, left_out)), flush=True)


def testbed_base(debian: str) -> str:
    """Return the image of the rehearsal cluster's release of Debian.

    Sets VERLJOB_DOCKER, so that all parts use one docker client.
    """
    os.environ["VERLJOB_DOCKER"] = client.choose().client
    return base_image.ensure(*base_image.debian(debian))


namespace = Collection(
    show_images,
    show_site,
    lock_variant,
    show_pins,
    make_bundle,
    compare_images,
    export_image,
    prune_images,
    write_sbom,
    verify_image,
    release_images,
)
