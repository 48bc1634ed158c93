"""Exports an image as docker-archive, oci-archive or squashfs; an archive's layers are checked against the engine's."""

from __future__ import annotations

import gzip
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from docker.models.images import Image

from images.builds import disk
from images.engine.daemon import local
from images.errors import ImageError, ToolMissing
from images.export import squashfs
from images.host import digests
from images.host.process import run

FORMATS = {"docker-archive": "docker.tar", "oci-archive": "oci.tar", "squashfs": "sqsh"}
# Disk space that an export takes, temporary files included, as a multiple of the image's size.
SPACE = {"docker-archive": 1.0, "oci-archive": 1.5, "squashfs": 1.0}
REMOVED = ("apptainer", "bake")


def export(reference: str, formats: Sequence[str], folder: Path) -> Iterator[Path]:
    """Write an image of the daemon in each format and yield each file; DiskTooSmall before the first."""
    image = local(reference)
    folder.mkdir(parents=True, exist_ok=True)
    needed = image.attrs["Size"] * sum(SPACE[each] for each in formats)
    disk.require(folder, needed, f"exporting {reference} as {', '.join(formats)}")
    writers = {"docker-archive": _docker_archive, "oci-archive": _oci_archive, "squashfs": _squashfs}
    for each in formats:
        path = folder / f"{stem(reference)}.{FORMATS[each]}"
        with _replacement(path) as new:
            writers[each](image, reference, new)
        yield path
        if each == "squashfs":  # which runtimes start as it is
            yield write_digest(path)


def parse_formats(by_comma: str) -> list[str]:
    """Parse formats separated by commas; ImageError for an unknown one."""
    formats = [word.strip() for word in by_comma.split(",") if word.strip()]
    if removed := [each for each in formats if each in REMOVED]:
        raise ImageError(
            f"the format {removed[0]} is no longer written. For Apptainer export a squashfs or a docker-archive, which "
            "`apptainer build` reads; docker buildx bake can build from .build/images/VARIANT"
        )
    if unknown := [each for each in formats if each not in FORMATS]:
        raise ImageError(f"unknown format {unknown[0]!r}: pass one of {', '.join(FORMATS)}")
    return formats


def stem(reference: str) -> str:
    """Return the file name of an image without its ending: NAME-TAG, without the registry."""
    return reference.rpartition("/")[2].replace(":", "-").replace("@", "-")


@contextmanager
def _replacement(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` at the end, and is removed after an error."""
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
    # skopeo's temporary files, as large as the image, go beside the archive instead of /var/tmp.
    argv = ["skopeo", "copy", "--quiet", f"docker-daemon:{image.id}", f"oci-archive:{path}:{tag}"]
    run(argv, {"TMPDIR": str(path.parent)})
    _check_layers(image, path)


def _squashfs(image: Image, _: str, path: Path) -> None:
    squashfs.make(image, path)


def write_digest(path: Path) -> Path:
    """Write FILE.sha256 as sha256sum does, by which a launch compares the file between nodes without reading it.

    A launch ignores it if the file is newer, so it is written last.
    """
    beside = path.with_name(f"{path.name}.sha256")
    with _replacement(beside) as new:
        new.write_text(f"{digests.sha256_file(path)}  {path.name}\n")
    return beside


def layer_names(archive: tarfile.TarFile) -> list[str]:
    """Return the members of an image archive that are its layers, lowest first.

    The archive is one of `docker save`, or of the OCI layout (https://github.com/opencontainers/image-spec).
    """
    members = archive.getnames()
    if "manifest.json" in members:  # docker's; since 25 an archive also has an OCI layout
        return [str(name) for name in _read_json(archive, "manifest.json")[0]["Layers"]]
    if "index.json" in members:
        digest = _read_json(archive, "index.json")["manifests"][0]["digest"]
        return [_blob(each["digest"]) for each in _read_json(archive, _blob(digest))["layers"]]
    raise ImageError(f"{archive.name!r} is not an image archive: it has neither manifest.json nor index.json")


def diff_ids(path: Path) -> list[str]:
    """Return the digests of an archive's uncompressed layers, by which an engine identifies them."""
    found = []
    with tarfile.open(path) as archive:
        for name in layer_names(archive):
            raw = archive.extractfile(name)
            assert raw
            compressed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            found.append(f"sha256:{digests.sha256_stream(gzip.GzipFile(fileobj=raw) if compressed else raw)}")
    return found


def _check_layers(image: Image, path: Path) -> None:
    if (found := diff_ids(path)) != (expected := image.attrs["RootFS"]["Layers"]):
        raise ImageError(f"{path.name} has other layers than {image.id}: {found} instead of {expected}")


def _read_json(archive: tarfile.TarFile, name: str) -> Any:
    file = archive.extractfile(name)
    return json.loads(file.read()) if file else None


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"
