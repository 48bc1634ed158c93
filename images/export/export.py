"""An image as files that other tools take: archives and a squashfs here, what builds it elsewhere in blueprint.py.

What has the image's files is read back before it gets its name: archives by the digests of their layers, as the engine
knows them, a squashfs path by path.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from docker.models.images import Image

from images.builds import disk
from images.builds.site import Site
from images.catalog.spec import ImageSpec
from images.contents import filesystem, layers
from images.contents.tree import differences
from images.engine.daemon import local
from images.errors import ImageError, ToolMissing
from images.export import blueprint, pseudo_files, squashfs
from images.host.process import run

ARCHIVES = {"docker-archive": "docker.tar", "oci-archive": "oci.tar", "squashfs": "sqsh"}
FORMATS = (*ARCHIVES, *blueprint.FORMATS)
# Of an image's size: the file itself, and what stands beside it until it is done.
SHARES = {"docker-archive": 1.0, "oci-archive": 1.5, "squashfs": 2.5}


@dataclass(frozen=True)
class Request:
    """What `invoke export` is asked for."""

    spec: ImageSpec
    formats: Sequence[str]
    image: str
    base: str
    folder: Path


def export(request: Request, site: Site) -> list[Path]:
    """Write all formats that are asked for, and return their files."""
    ready = [each for each in request.formats if each in ARCHIVES]
    paths = archives(local(request.image), request.image, ready, request.folder) if ready else []
    told = [each for each in request.formats if each not in ARCHIVES]
    return paths + (blueprint.write(request.spec, site, told, request.folder, request.base) if told else [])


def formats(by_comma: str) -> list[str]:
    """The formats that are asked for; ImageError where one is none of ours."""
    asked = [word.strip() for word in by_comma.split(",") if word.strip()]
    if unknown := [each for each in asked if each not in FORMATS]:
        raise ImageError(f"no format {unknown[0]!r}; there are: {', '.join(FORMATS)}")
    return asked


def stem(reference: str) -> str:
    """What the files of an image are called, without their endings: NAME-TAG without its registry."""
    return reference.rpartition("/")[2].replace(":", "-").replace("@", "-")


def archives(
    image: Image, reference: str, asked: Sequence[str], folder: Path, free: disk.Free = disk.free_bytes
) -> list[Path]:
    """Write the image's own files in each of the archives asked for; DiskTooSmall before anything is written."""
    folder.mkdir(parents=True, exist_ok=True)
    needed = image.attrs["Size"] * sum(SHARES[each] for each in asked)
    disk.require(folder, needed, f"exporting {reference} as {', '.join(asked)}", free)
    ways = {"docker-archive": _docker_archive, "oci-archive": _oci_archive, "squashfs": _squashfs}
    paths = []
    for each in asked:
        path = folder / f"{stem(reference)}.{ARCHIVES[each]}"
        with _new(path) as new:
            ways[each](image, reference, new)
        paths.append(path)
    return paths


@contextmanager
def _new(path: Path) -> Iterator[Path]:
    """A path that becomes ``path`` when all went well, and is gone when not."""
    with tempfile.TemporaryDirectory(prefix=".new-", dir=path.parent) as folder:
        new = Path(folder) / path.name
        yield new
        new.replace(path)


def _docker_archive(image: Image, reference: str, path: Path) -> None:
    with path.open("wb") as file:
        for chunk in image.save(named=reference):
            file.write(chunk)
    _check_layers(image, path)


def _oci_archive(image: Image, reference: str, path: Path) -> None:
    if not shutil.which("skopeo"):
        raise ToolMissing("skopeo", "skopeo")
    tag = reference.rpartition("/")[2].rpartition(":")[2] if ":" in reference.rpartition("/")[2] else "latest"
    # skopeo's own temporary files, an image's worth, go beside the archive and not to /var/tmp.
    ends = [f"docker-daemon:{image.id}", f"oci-archive:{path}:{tag}"]
    run(["skopeo", "copy", "--quiet", *ends], {"TMPDIR": str(path.parent)})
    _check_layers(image, path)


def _check_layers(image: Image, path: Path) -> None:
    if (found := layers.diff_ids(path)) != (wanted := image.attrs["RootFS"]["Layers"]):
        raise ImageError(f"{path.name} came out with other layers than {image.id}: {found} in place of {wanted}")


def _squashfs(image: Image, reference: str, path: Path) -> None:
    created = datetime.strptime(image.attrs["Created"][:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    archive = path.with_suffix(".tar")
    _docker_archive(image, reference, archive)
    own = squashfs.make(archive, image.attrs["Config"], int(created.timestamp()), path)
    differing = differences(filesystem.of_archive(archive), pseudo_files.read(path))
    if wrong := [line for line in differing if line.partition(": ")[0] not in own]:
        listed = "\n".join(wrong[:10])
        raise ImageError(f"{path.name} came out with {len(wrong)} paths other than in {reference}:\n{listed}")
