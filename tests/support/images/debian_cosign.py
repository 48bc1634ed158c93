"""Debian's cosign, unpacked without installing it: 2.5.0 of trixie, and sid's version (3.1.1 when written).

apt downloads it with separate lists, status and cache, so the machine does not change, and verifies the archive's
signature against Debian's keyring and the package against the archive, as usual. Each suite takes 10 MB of lists and
15 MB of package, once for a checkout.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from images.engine.base_image import DEBIAN_MIRROR
from tests.support.paths import CHECKOUT

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
CACHE = CHECKOUT / ".build" / "cosign"
SUITES = ("trixie", "sid")


def ensure(suite: str) -> Path:
    """Return the binary, downloaded if missing. Raises CalledProcessError after printing apt's output."""
    binary = CACHE / suite / "usr" / "bin" / "cosign"
    if not binary.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            unpacked = Path(folder) / "unpacked"
            _command("dpkg-deb", "--extract", str(_download(suite, Path(folder))), str(unpacked))
            if not binary.exists():  # another test process may have been first
                os.rename(unpacked, CACHE / suite)
    return binary


def _download(suite: str, folder: Path) -> Path:
    for subfolder in ("state/lists/partial", "cache/archives/partial", "parts"):
        (folder / subfolder).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sources").write_text(f"deb [signed-by={KEYRING}] {DEBIAN_MIRROR} {suite} main\n")
    options = {
        "Dir::Etc::SourceList": folder / "sources",
        "Dir::Etc::SourceParts": folder / "parts",
        "Dir::Etc::PreferencesParts": folder / "parts",
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::Retries": 3,
        "APT::Update::Error-Mode": "any",
    }
    flags = [flag for name, value in options.items() for flag in ("--option", f"{name}={value}")]
    _command("apt-get", *flags, "--quiet", "update", cwd=folder)
    _command("apt-get", *flags, "--quiet", "download", "cosign", cwd=folder)
    (package,) = folder.glob("cosign_*.deb")
    return package


def _command(*argv: str, cwd: Path | None = None) -> None:
    done = subprocess.run(argv, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(done.stdout)  # noqa: T201  # pytest shows it if this fails
    done.check_returncode()
