"""Base images: present in the daemon, pulled, or (Debian and Ubuntu) made by debootstrap."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from images.engine.client import Engine, choose
from images.engine.daemon import find
from images.errors import BaseUnreachable, CommandFailed, ImageError
from images.host.locking import exclusive
from images.host.process import run

DEBIAN_MIRROR = "http://deb.debian.org/debian"
UBUNTU_MIRROR = "http://archive.ubuntu.com/ubuntu"
DEBIAN_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
UBUNTU_KEYRING = Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")
PULL_TIMEOUT_S = 1800.0


def debian(suite: str) -> tuple[str, str]:
    """Return Debian's reference of a release, and the name under which debootstrap makes it."""
    return f"docker.io/library/debian:{suite}-slim", f"verljob-base:{suite}"


DEBIAN, MADE = debian("bookworm")


@dataclass(frozen=True)
class Distribution:
    """A distribution that debootstrap can make: its mirror, and the keys by which its packages are signed."""

    mirror: str
    keyring: Path
    keyring_package: str
    script: str = ""  # debootstrap's, if it may be too old to know the suite
    sources: Sequence[str] = ()  # suites and components in the base's sources.list, if debootstrap's are not enough


_DEBIAN = Distribution(DEBIAN_MIRROR, DEBIAN_KEYRING, "debian-archive-keyring", "/usr/share/debootstrap/scripts/sid")


def _ubuntu(suite: str) -> Distribution:
    sources = [f"{each} main universe" for each in (suite, f"{suite}-updates")]
    script = "/usr/share/debootstrap/scripts/gutsy"  # of all suites of Ubuntu
    return Distribution(UBUNTU_MIRROR, UBUNTU_KEYRING, "ubuntu-keyring", script, sources)


SUITES = {
    **dict.fromkeys(("bookworm", "trixie", "sid"), _DEBIAN),
    **{suite: _ubuntu(suite) for suite in ("focal", "jammy", "noble")},
}


def ensure(
    reference: str = DEBIAN,
    made: str = MADE,
    mirror: str | None = None,
    engine: Engine | None = None,
) -> str:
    """Return a reference that the daemon has: ``reference``, or ``made``, whose tag is the suite of a distribution.

    If neither is present, pull ``reference``. If no registry answers, make ``made`` by debootstrap, which takes about
    90 s and 200 MB, root, and the packages debootstrap and that of the distribution's keys.
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
            _debootstrap(engine, made, mirror)
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


def _debootstrap(engine: Engine, made: str, mirror: str | None) -> None:
    """Make the base from signed packages; the mirror itself is reached over plain http."""
    suite = made.rpartition(":")[2]
    distribution = SUITES[suite]
    mirror = mirror or distribution.mirror
    if not distribution.keyring.exists():
        raise ImageError(
            f"{distribution.keyring} is missing, and without it debootstrap would accept any package that {mirror} or "
            f"the network sends. `apt-get install {distribution.keyring_package}`, and this command makes the base."
        )
    with tempfile.TemporaryDirectory(prefix="verljob-base-") as folder:
        root = Path(folder) / "root"
        flags = ["--force-check-gpg", f"--keyring={distribution.keyring}", "--variant=minbase"]
        script = [distribution.script] if distribution.script else []
        run(["debootstrap", *flags, suite, str(root), mirror, *script])
        if distribution.sources:
            text = "".join(f"deb {distribution.mirror} {source}\n" for source in distribution.sources)
            (root / "etc/apt/sources.list").write_text(text, encoding="utf-8")
        # An image has no use for package archives and indexes.
        exclude = ["--exclude=./var/cache/apt/archives/*.deb", "--exclude=./var/lib/apt/lists/*", "--exclude=./dev/*"]
        argv = [engine.client, "import", "-", made]
        with subprocess.Popen(["tar", "-C", str(root), *exclude, "-c", "."], stdout=subprocess.PIPE) as tar:
            done = subprocess.run(argv, stdin=tar.stdout, capture_output=True, text=True, check=False)
        if done.returncode or tar.returncode:
            raise CommandFailed(argv, done.returncode or tar.returncode, done.stderr)
