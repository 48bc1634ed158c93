"""Tasks `image.*`: variants, pins, files and statements of images."""

from __future__ import annotations

import os
from pathlib import Path

from invoke import Collection, Context, task

from images.builds import make_bundle as bundles
from images.builds import prune, site_settings
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.contents import diff, table
from images.engine import base_image, client
from images.export import export
from images.host import paths
from images.pins import locks
from images.pins import pins as all_pins


@task(name="list", help={"space": "an image: what takes its space"})
def show_images(_: Context, space: str = "") -> None:
    """Show the variants with their pins, and what is built here."""
    print(table.space(space) if space else table.table(Catalog.read()), flush=True)


@task(name="site", help={"site": "a site file in place of the one that VERLJOB_SITE names"})
def show_site(_: Context, site: str = "") -> None:
    """Show what this place has of its own, and who says so: flags of `build`, the environment, the site file."""
    found = site_settings.settings(site)
    site_settings.refuse_missing(found)
    print(site_settings.table(found), flush=True)


@task(name="lock", help={"variant": "one variant; all of them without it"})
def lock_variant(_: Context, variant: str = "") -> None:
    """Resolve again what the packages of a variant, or of all, pull, after a pin changed; needs a package index."""
    catalog = Catalog.read()
    chosen = [locks.write(catalog.find(variant=variant))] if variant else locks.write_all(catalog)
    print("\n".join(map(str, chosen)), flush=True)


@task(name="pins", help={"check": "read files alone", "update": "ask indexes, registries and mirrors again"})
def show_pins(_: Context, check: bool = False, update: bool = False) -> None:
    """Tell what is pinned and what is not known yet; 1 where something should be and is not."""
    catalog = Catalog.read()
    for line in all_pins.update(catalog) if update else ():
        print(line, flush=True)
    print(
        all_pins.check(catalog) if check or not update else "review: git diff images/, then invoke render", flush=True
    )


@task(
    name="bundle",
    help={
        "output": "an empty folder, or a new one",
        "base": "another base, such as a mirror's copy",
        "site": "a site file in place of the one that VERLJOB_SITE names",
    },
)
def make_bundle(_: Context, *, variant: str, output: str, base: str = "", site: str = "") -> None:
    """Write all that the build of a variant downloads into a folder, for `build --bundle` where there is no network."""
    chosen, here = Catalog.read().find(variant=variant), Site.here(site)
    print(str(bundles.make(chosen, here, Path(output), from_base=base)), flush=True)


@task(name="diff", help={"output": "a file for all of it, as JSON where it ends so"})
def compare_images(_: Context, a: str, b: str, output: str = "") -> None:
    """Show what differs between two images of this machine: packages, files, sizes."""
    found = diff.between(a, b)
    if output:
        diff.write(found, Path(output))
    print(diff.text(found), flush=True)


@task(
    name="export",
    help={
        "format": "by comma: docker-archive, oci-archive, squashfs",
        "image": "an image of this machine in place of what build names",
        "output": "a folder in place of .build/export/VARIANT",
    },
)
def export_image(
    _: Context,
    *,
    format: str,
    platform: str = "",
    variant: str = "",
    rollout: str = "",
    image: str = "",
    output: str = "",
) -> None:
    """Write an image as files that other tools take, and print their names."""
    catalog = Catalog.read()
    chosen, formats = catalog.find(platform, variant, rollout), export.parse_formats(format)
    folder = Path(output) if output else paths.EXPORTS / chosen.name
    for path in export.export(image or catalog.names(chosen)[0], formats, folder):
        print(str(path), flush=True)


@task(name="prune", help={"yes": "remove what is shown"})
def prune_images(_: Context, yes: bool = False) -> None:
    """Show images and build cache of this toolkit that nothing of the catalog names any more, or remove them."""
    old = prune.find(Catalog.read())
    print(prune.remove(old) if yes else prune.shown(old), flush=True)


@task(name="sbom", help={"image": "an image of this machine", "output": "a folder in place of .build/attestations"})
def state_image(_: Context, image: str = "verl.cpu:latest", output: str = "") -> None:
    """Write the SBOM of an image, and its provenance where it was built here, and print the files."""
    from images.provenance import attest as provenance_attest

    for path in provenance_attest.write(image, Path(output) if output else paths.ATTESTATIONS):
        print(str(path), flush=True)


@task(name="verify", help={"image": "REGISTRY/NAME:TAG, or with @DIGEST", "key": "public key of who must have signed"})
def verify_image(_: Context, image: str, key: str = "") -> None:
    """Check what is stated of an image in its registry against what is in it; 1 and a sentence where it is not so."""
    from images.provenance import verify

    print(verify.verify(image, Path(key) if key else None), flush=True)


def testbed_base() -> str:
    """The Debian image of the rehearsal cluster; sets VERLJOB_DOCKER, so that all parts use one docker client."""
    os.environ["VERLJOB_DOCKER"] = client.choose().client
    return base_image.ensure()


namespace = Collection(
    show_images,
    show_site,
    lock_variant,
    show_pins,
    make_bundle,
    compare_images,
    export_image,
    prune_images,
    state_image,
    verify_image,
)
