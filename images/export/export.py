"""Exports an image as docker-archive, oci-archive or squashfs.

The layers of an archive are compared with the engine's digests.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from docker.models.images import Image

from images.builds import disk
from images.contents import layers
from images.engine.daemon import local
from images.errors import ImageError, ToolMissing
from images.export import squashfs
from images.host.process import run

FORMATS = {"docker-archive": "docker.tar", "oci-archive": "oci.tar", "squashfs": "sqsh"}
# Of an image's size: the file itself, and what stands beside it until it is done.
SHARES = {"docker-archive": 1.0, "oci-archive": 1.5, "squashfs": 1.0}
GONE = ("apptainer", "bake")


def export(reference: str, formats: Sequence[str], folder: Path, free: disk.Free = disk.free_bytes) -> Iterator[Path]:
    """Write an image of this machine in each of the formats, and yield each file; DiskTooSmall before the first."""
    image = local(reference)
    folder.mkdir(parents=True, exist_ok=True)
    needed = image.attrs["Size"] * sum(SHARES[each] for each in formats)
    disk.require(folder, needed, f"exporting {reference} as {', '.join(formats)}", free)
    writers = {"docker-archive": _docker_archive, "oci-archive": _oci_archive, "squashfs": _squashfs}
    for each in formats:
        path = folder / f"{stem(reference)}.{FORMATS[each]}"
        with _new(path) as new:
            writers[each](image, reference, new)
        yield path


def parse_formats(by_comma: str) -> list[str]:
    """The formats of a list by comma; ImageError for an unknown one."""
    asked = [word.strip() for word in by_comma.split(",") if word.strip()]
    if gone := [each for each in asked if each in GONE]:
        raise ImageError(
            f"the format {gone[0]} is no longer written. For Apptainer export a squashfs or a docker-archive, which "
            "`apptainer build` takes; docker buildx bake can build from .build/images/VARIANT"
        )
    if unknown := [each for each in asked if each not in FORMATS]:
        raise ImageError(f"no format {unknown[0]!r}; there are: {', '.join(FORMATS)}")
    return asked


def stem(reference: str) -> str:
    """The file name of an image without its ending: NAME-TAG, without the registry."""
    return reference.rpartition("/")[2].replace(":", "-").replace("@", "-")


@contextmanager
def _new(path: Path) -> Iterator[Path]:
    """A path that becomes ``path`` at the end, and is removed after an error."""
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


def _squashfs(image: Image, _: str, path: Path) -> None:
    squashfs.make(image, path)


def _check_layers(image: Image, path: Path) -> None:
    if (found := layers.diff_ids(path)) != (wanted := image.attrs["RootFS"]["Layers"]):
        raise ImageError(f"{path.name} has other layers than {image.id}: {found} in place of {wanted}")
