"""Base images: found on this machine, pulled, or (Debian) made by debootstrap."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from images.engine.client import Engine, choose
from images.engine.daemon import find
from images.errors import BaseUnreachable, CommandFailed, ImageError
from images.host.locking import alone
from images.host.process import run

DEBIAN = "docker.io/library/debian:bookworm-slim"
MADE = "verljob-base:bookworm"
DEBIAN_MIRROR = "http://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")  # of the package debian-archive-keyring
PULL_TIMEOUT_S = 1800.0


def ensure(reference: str = DEBIAN, made: str = MADE, mirror: str | None = None, engine: Engine | None = None) -> str:
    """A reference of Debian bookworm that the daemon has: ``reference`` itself, or ``made``.

    Looked for in this order: either of them on this machine, a pull of ``reference``, debootstrap into ``made`` (about
    90 s and 200 MB; needs root and the packages debootstrap and debian-archive-keyring).
    """
    if present(here := known(reference, made)):
        return here
    with alone(made.replace(":", "-")):
        return _fetch(reference, made, mirror or DEBIAN_MIRROR, engine or choose())


def _fetch(reference: str, made: str, mirror: str, engine: Engine) -> str:
    """What ``ensure`` says, once nobody else does it: somebody may just have."""
    if present(here := known(reference, made)):
        return here
    try:
        pull(engine, reference)
    except BaseUnreachable as unreachable:
        if not shutil.which("debootstrap"):
            raise ImageError(f"{unreachable} Or `apt-get install debootstrap`, and I make it.") from None
        _debootstrap(engine, made, mirror)
        return made
    return reference


def known(*references: str) -> str:
    """The first that the daemon has, else the first."""
    return next((each for each in references if each and present(each)), references[0])


def present(reference: str) -> bool:
    """Whether the daemon has this image."""
    return find(reference) is not None


def pull(engine: Engine, reference: str) -> None:
    """Pull, or raise BaseUnreachable with what docker said."""
    try:
        run([engine.client, "pull", "--quiet", reference], timeout_s=PULL_TIMEOUT_S)
    except CommandFailed as failure:
        raise BaseUnreachable(reference, failure.output) from failure


def _debootstrap(engine: Engine, made: str, mirror: str) -> None:
    """Make the base of packages that Debian's keys signed: the mirror is asked over http."""
    if not KEYRING.exists():
        raise ImageError(
            f"{KEYRING} is missing, and without it debootstrap would take any package that {mirror} or the network "
            "answers with. `apt-get install debian-archive-keyring`, and I make the base."
        )
    with tempfile.TemporaryDirectory(prefix="verljob-base-") as folder:
        root = Path(folder) / "root"
        signed = ["--force-check-gpg", f"--keyring={KEYRING}"]
        run(["debootstrap", *signed, "--variant=minbase", "bookworm", str(root), mirror])
        # The packages' archives and indexes are of no use in an image.
        leave_out = ["--exclude=./var/cache/apt/archives/*.deb", "--exclude=./var/lib/apt/lists/*", "--exclude=./dev/*"]
        with subprocess.Popen(["tar", "-C", str(root), *leave_out, "-c", "."], stdout=subprocess.PIPE) as tar:
            done = subprocess.run(
                [engine.client, "import", "-", made], stdin=tar.stdout, capture_output=True, text=True, check=False
            )
        if done.returncode or tar.returncode:
            raise CommandFailed([engine.client, "import", "-", made], done.returncode or tar.returncode, done.stderr)
