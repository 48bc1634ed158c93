"""A release of the toolkit: version, commit, registry, key and CHANGELOG section, checked before anything is built."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from images.catalog.variant import Variant
from images.errors import CommandFailed, ReleaseFailed
from images.host.paths import RELEASES, ROOT
from images.provenance import signing
from images.release import notes
from images.report import record

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REGISTRY = re.compile(r"[a-z0-9][a-z0-9.-]*(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")
VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?")
SHOWN = 5  # changed files that a message names


@dataclass(frozen=True)
class Release:
    """A version of the toolkit at a commit, the registry that gets its images, and the private key that signs them.

    ``public_key`` belongs to ``key``, and is a file of ``folder``, which gets the text and the table of images;
    ``changes`` is the version's section of CHANGELOG.md.
    """

    version: str
    commit: str
    registry: str
    key: Path
    changes: str
    folder: Path

    @classmethod
    def from_flags(cls, version: str, registry: str, key: str, output: str = "") -> Release:
        """Make the release of a version or its git tag; raise ReleaseFailed if the checkout is of another version.

        Also if CHANGELOG.md has no section of it, a file is not committed, or the registry or the key is not usable.
        """
        number = _require_version(version)
        changes = notes.section(number, ROOT / "CHANGELOG.md")
        if not REGISTRY.fullmatch(registry):
            raise ReleaseFailed(f"--registry {registry!r} is not HOST[:PORT][/PATH] in lower case: name one registry")
        commit, public_key = _require_commit(), _public_key(Path(key))
        folder = Path(output) if output else RELEASES / f"v{number}"
        folder.mkdir(parents=True, exist_ok=True)
        release = cls(number, commit, registry, Path(key), changes, folder)
        release.public_key.write_text(public_key, encoding="utf-8")
        return release

    @property
    def public_key(self) -> Path:
        return self.folder / "release.pub"

    def repository(self, variant: Variant) -> str:
        """Name of a variant's repository."""
        return f"{self.registry}/{variant.repository}"

    def tag(self, variant: Variant) -> str:
        """Tag of a variant's image of this version, which never moves to another image."""
        return f"{variant.tag}-v{self.version}"

    def candidate_tag(self, variant: Variant) -> str:
        """Tag of a variant's complete image of this commit, which is not part of a release yet."""
        return f"{self.tag(variant)}-g{self.commit[:12]}"


def toolkit_version() -> str:
    """Return the toolkit's version, which pyproject.toml defines."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def _require_version(named: str) -> str:
    version = toolkit_version()
    if named not in (version, f"v{version}"):
        raise ReleaseFailed(
            f"{named!r} is not the version of this checkout: pyproject.toml has {version}, whose tag is v{version}. "
            "Change `version` in pyproject.toml and commit it before the tag is set."
        )
    if not VERSION.fullmatch(version):
        raise ReleaseFailed(
            f"pyproject.toml has the version {version!r}, which is not like 1.2.0 or 1.2.0rc1: image tags have it"
        )
    return version


def _require_commit() -> str:
    commit, changes = record.checkout_state(ROOT)
    if changes or not commit:
        named = ", ".join(changes[:SHOWN]) or "it has no commit"
        raise ReleaseFailed(f"{ROOT} is not a commit: {named}. Commit or remove these files: a release is one commit.")
    return commit


def _public_key(key: Path) -> str:
    try:
        return signing.public_key(key)
    except CommandFailed as failure:
        raise ReleaseFailed(
            f"--key {key} is not a private key that can be read; docs/images.md, 'Attestations', makes one. Its "
            f"password is expected in {signing.PASSWORD}.\n{failure.output[-300:]}"
        ) from failure
