"""Pins of Debian and Ubuntu packages: version and sha256 of all that apt installs for a variant.

A base has some of them; dockerfiles/apt.sh installs the others at these versions and hashes. Resolving needs neither an
engine nor the base: apt runs on an empty system with the variant's suites and architecture.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from images.catalog.variant import Variant
from images.engine.base_image import SUITES
from images.errors import ImageError
from images.host.paths import APT_PINS
from images.host.process import run


def path(variant: Variant, folder: Path = APT_PINS) -> Path:
    """Return the file of a variant's pins, which variants of one suite and machine share.

    A build installs every package of the file that the base does not have, so a bare base has another file.
    """
    bare = "-wheels" if variant.from_wheels else ""
    return folder / f"{_suite(variant)}{bare}-{variant.machine}.txt"


def text(variant: Variant, folder: Path = APT_PINS) -> str:
    """Return `name version sha256` lines for dockerfiles/apt.sh; empty if the mirror was never queried."""
    pins = path(variant, folder)
    return pins.read_text(encoding="utf-8") if pins.is_file() else ""


def covers(variant: Variant, folder: Path = APT_PINS) -> bool:
    """Whether every package that the variant names is pinned."""
    lines = text(variant, folder).splitlines()
    return {line.split()[0] for line in lines if line and not line.startswith("#")} >= set(variant.apt_packages)


def update(variant: Variant, folder: Path = APT_PINS) -> Path:
    """Resolve the pins on the distribution's mirror, and write them; raise ImageError without apt or the keys."""
    if not shutil.which("apt-get"):
        raise ImageError("apt-get is needed to query a mirror for versions: run this on Debian or Ubuntu")
    with tempfile.TemporaryDirectory(prefix="verljob-apt-") as temporary:
        system = Path(temporary)
        for name in ("lists/partial", "archives/partial"):
            (system / name).mkdir(parents=True)
        keyring = SUITES[_suite(variant)].keyring
        signed = f" [signed-by={keyring}]" if keyring.exists() else ""  # else apt's own keys decide
        sources = [f"deb{signed} {variant.apt_mirror} {suite}" for suite in variant.apt_suites]
        (system / "sources").write_text("\n".join(sources) + "\n", encoding="utf-8")
        (system / "status").touch()
        environment = {"APT_CONFIG": str(_configuration(system, variant.architecture))}
        run(["apt-get", "--quiet", "--error-on=any", "update"], environment)
        install = ["install", "--yes", "--no-install-recommends", *variant.apt_packages]
        uris = run(["apt-get", "--quiet=2", "--print-uris", *install], environment)
        # --print-uris has only MD5 sums, `show` all hashes of the signed index.
        names = re.findall(r"^'[^']+' ([^_]+)_", uris, re.MULTILINE)
        shown = run(["apt-cache", "--no-all-versions", "show", *names], environment)
    target = path(variant, folder)
    pins = sorted(map(_pin, shown.strip().split("\n\n")))
    target.write_text("\n".join([f"# {'; '.join(variant.apt_suites)}", *pins]) + "\n", encoding="utf-8")
    return target


def _suite(variant: Variant) -> str:
    return variant.apt_suites[0].split()[0]


def _pin(paragraph: str) -> str:
    fields = dict(re.findall(r"^(Package|Version|SHA256): (.+)$", paragraph, re.MULTILINE))
    return f"{fields['Package']} {fields['Version']} {fields['SHA256']}"


def _configuration(system: Path, architecture: str) -> Path:
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "Dir::State::status": system / "status",
        "Dir::State::Lists": system / "lists",
        "Dir::Etc::SourceList": system / "sources",
        "Dir::Etc::SourceParts": "-",
        "Dir::Cache": system,
        "Dir::Cache::archives": system / "archives",
    }
    lines = [f'{name} "{value}";' for name, value in settings.items()]
    (system / "apt.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return system / "apt.conf"
