"""Debian's cosign, unpacked and not installed: 2.5.0 of trixie; of sid what it has, 3.1.1 when this was written.

apt fetches it with lists, status and cache of its own, so nothing of the machine changes, and holds the archive's
signature against Debian's keyring and the package against the archive, as for any package. 10 MB of lists and 15 MB of
package for each, once for a checkout.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from images.engine.base_image import DEBIAN_MIRROR
from tests.support.paths import CHECKOUT

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
KEPT = CHECKOUT / ".build" / "cosign"
SUITES = ("trixie", "sid")


def ensure(suite: str) -> Path:
    """The binary; CalledProcessError with apt's words where it is not to be had."""
    binary = KEPT / suite / "usr" / "bin" / "cosign"
    if not binary.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as folder:
            unpacked = Path(folder) / "unpacked"
            _command("dpkg-deb", "--extract", str(_download(suite, Path(folder))), str(unpacked))
            if not binary.exists():  # a test process beside this one may have been first
                os.rename(unpacked, KEPT / suite)
    return binary


def _download(suite: str, folder: Path) -> Path:
    for place in ("state/lists/partial", "cache/archives/partial", "parts"):
        (folder / place).mkdir(parents=True)
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
    words = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    _command("apt-get", *words, "--quiet", "update", cwd=folder)
    _command("apt-get", *words, "--quiet", "download", "cosign", cwd=folder)
    (package,) = folder.glob("cosign_*.deb")
    return package


def _command(*words: str, cwd: Path | None = None) -> None:
    done = subprocess.run(words, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(done.stdout)  # noqa: T201  # pytest shows it where this fails
    done.check_returncode()
