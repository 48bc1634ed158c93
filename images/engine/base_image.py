"""Base images: present in the daemon, pulled, or (Debian) made by debootstrap."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from images.engine.client import Engine, choose
from images.engine.daemon import find
from images.errors import BaseUnreachable, CommandFailed, ImageError
from images.host.locking import exclusive
from images.host.process import run

DEBIAN = "docker.io/library/debian:bookworm-slim"
MADE = "verljob-base:bookworm"
DEBIAN_MIRROR = "http://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")  # of the package debian-archive-keyring
PULL_TIMEOUT_S = 1800.0


def ensure(reference: str = DEBIAN, made: str = MADE, mirror: str | None = None, engine: Engine | None = None) -> str:
    """Return a reference of Debian bookworm that the daemon has: ``reference`` or ``made``.

    If neither is present, pull ``reference``. If no registry answers, make ``made`` by debootstrap, which takes about
    90 s and 200 MB, root, and the packages debootstrap and debian-archive-keyring.
    """
    if present(local := first_present(reference, made)):
        return local
    engine = engine or choose()
    with exclusive(made.replace(":", "-")):
        if present(local := first_present(reference, made)):  # another process may have made it meanwhile
            return local
        try:
            pull(engine, reference)
        except BaseUnreachable as unreachable:
            if not shutil.which("debootstrap"):
                raise ImageError(
                    f"{unreachable} Or `apt-get install debootstrap`, and this command makes the base."
                ) from None
            _debootstrap(engine, made, mirror or DEBIAN_MIRROR)
            return made
        return reference


def first_present(*references: str) -> str:
    """Return the first reference that the daemon has, else the first."""
    return next((each for each in references if each and present(each)), references[0])


def present(reference: str) -> bool:
    """Whether the daemon has this image."""
    return find(reference) is not None


def pull(engine: Engine, reference: str) -> None:
    """Pull an image, or raise BaseUnreachable with docker's message."""
    try:
        run([engine.client, "pull", "--quiet", reference], timeout_s=PULL_TIMEOUT_S)
    except CommandFailed as failure:
        raise BaseUnreachable(reference, failure.output) from failure


def _debootstrap(engine: Engine, made: str, mirror: str) -> None:
    """Make the base from packages signed by Debian's keys; the mirror itself is reached over plain http."""
    if not KEYRING.exists():
        raise ImageError(
            f"{KEYRING} is missing, and without it debootstrap would accept any package that {mirror} or the network "
            "sends. `apt-get install debian-archive-keyring`, and this command makes the base."
        )
    with tempfile.TemporaryDirectory(prefix="verljob-base-") as folder:
        root = Path(folder) / "root"
        signed = ["--force-check-gpg", f"--keyring={KEYRING}"]
        run(["debootstrap", *signed, "--variant=minbase", "bookworm", str(root), mirror])
        # An image has no use for package archives and indexes.
        exclude = ["--exclude=./var/cache/apt/archives/*.deb", "--exclude=./var/lib/apt/lists/*", "--exclude=./dev/*"]
        argv = [engine.client, "import", "-", made]
        with subprocess.Popen(["tar", "-C", str(root), *exclude, "-c", "."], stdout=subprocess.PIPE) as tar:
            done = subprocess.run(argv, stdin=tar.stdout, capture_output=True, text=True, check=False)
        if done.returncode or tar.returncode:
            raise CommandFailed(argv, done.returncode or tar.returncode, done.stderr)
