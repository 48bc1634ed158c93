"""verl from a checkout or a commit, in place of a release: the content of /opt/verl.

The package is copied, not built: it has only Python files, and an edit then changes one layer. Beside it is the
metadata that pip and importlib.metadata read, with the origin in PEP 610's direct_url.json.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from images.catalog.variant import State, Variant
from images.context.staging import Staging
from images.errors import ImageError
from images.host.paths import VERL_COMMITS
from images.host.process import run

REPOSITORY = "https://github.com/verl-project/verl.git"
VERSION = "verl/version/version"
COMMIT = re.compile(r"[0-9a-f]{40}")
FETCH_TIMEOUT_S = 600.0
GitEnvironment = Callable[[str], Mapping[str, str]]


@dataclass(frozen=True)
class Source:
    """A verl on this host; ``commit`` is empty for a checkout, which has no fixed state.

    ``revision`` is the requested branch, tag or commit.
    """

    folder: Path
    version: str
    url: str
    revision: str = ""
    commit: str = ""
    editable: bool = False

    @property
    def label(self) -> str:
        """The part of the tag that distinguishes its image from the release's."""
        return self.commit[:12] or ("editable" if self.editable else "local")

    @property
    def direct_url(self) -> dict[str, Any]:
        if self.commit:
            return {
                "url": self.url,
                "vcs_info": {"vcs": "git", "requested_revision": self.revision, "commit_id": self.commit},
            }
        return {"url": self.url, "dir_info": {"editable": self.editable}}


def find(verl: str, environment: GitEnvironment, *, editable: bool = False, commits: Path = VERL_COMMITS) -> Source:
    """Return the source of ``--verl``: a checkout's folder, ``git+URL@REF``, or ``git:REF`` of verl's repository.

    ``environment`` returns the site's environment for git, by repository URL. A commit that was fetched before is not
    fetched again.
    """
    if verl.startswith(("git+", "git:")):
        url, _, revision = verl[4:].rpartition("@") if verl.startswith("git+") else (REPOSITORY, "", verl[4:])
        if editable or not url or not revision:
            raise ImageError(
                f"--verl={verl} is not valid: pass git+URL@REF or git:REF; only a checkout's folder can be --editable."
            )
        commit = _fetch(url, revision, environment(url), commits)
        folder = commits / commit
        return Source(folder, _version(folder), url, revision=revision, commit=commit)
    folder = Path(verl).expanduser().resolve()
    return Source(folder, _version(folder), folder.as_uri(), editable=editable)


def from_flags(
    variant: Variant, verl: str, editable: bool, environment: GitEnvironment
) -> tuple[Variant, Source | None]:
    """Return the variant with the verl of ``--verl``, and its source; without the flag the variant and None."""
    if not verl:
        if editable:
            raise ImageError("--editable needs a checkout: pass its folder with --verl PATH.")
        return variant, None
    source = find(verl, environment, editable=editable)
    return with_source(variant, source), source


def with_source(variant: Variant, source: Source) -> Variant:
    """Return the variant with this verl in place of the release, whose evidence does not hold for it.

    All else stays as in the catalog.
    """
    installs, release = {**variant.installs, "verl": source.version}, variant.installs["verl"]
    state = State(
        "reasoned", f"it has verl {source.version} ({source.label}), and the catalog's state is for {release}"
    )
    return replace(variant, installs=installs, source=source.label, instead_of=release, state=state)


def stage(source: Source, staging: Staging, name: str) -> None:
    """Stage the content of /opt/verl in the folder ``name``; for an editable checkout a link to its folder."""
    if source.editable:
        staging.symlink(f"{name}/verl", str(source.folder / "verl"))
    else:
        try:
            staging.tree(f"{name}/verl", str(source.folder / "verl"), _is_left_out, _mode)
        except PermissionError as unreadable:
            raise ImageError(f"{source.folder} cannot be read: {unreadable}. Build as its owner.") from unreadable
    facts = f"{name}/verl-{source.version.replace('-', '_')}.dist-info"
    staging.text(f"{facts}/METADATA", f"Metadata-Version: 2.1\nName: verl\nVersion: {source.version}\n")
    staging.text(f"{facts}/INSTALLER", "verl-on-slurm\n")
    staging.text(f"{facts}/direct_url.json", json.dumps(source.direct_url, indent=1) + "\n")


def _fetch(url: str, revision: str, environment: Mapping[str, str], commits: Path) -> str:
    """Fetch a revision, unpack its verl/ below ``commits``, and return its commit."""
    if COMMIT.fullmatch(revision) and (commits / revision).is_dir():
        return revision
    commits.mkdir(parents=True, exist_ok=True)
    git = ["git", "-C", str(commits / "repository")]
    run(["git", "init", "--quiet", "--bare", str(commits / "repository")])
    run([*git, "fetch", "--quiet", "--depth", "1", "--", url, revision], environment, FETCH_TIMEOUT_S)
    commit = run([*git, "rev-parse", "FETCH_HEAD^{commit}"]).strip()
    if not (commits / commit).is_dir():
        unpacked = commits / f"{commit}.new"
        shutil.rmtree(unpacked, ignore_errors=True)
        unpacked.mkdir()
        # Links become files with their target, so that none leads out of the folder.
        into = [f"--work-tree={unpacked}", "-c", "core.symlinks=false", "-c", "core.hooksPath=/dev/null"]
        run([*git, *into, "checkout", "--quiet", "--force", commit, "--", "verl"])
        unpacked.replace(commits / commit)
    return commit


def _version(folder: Path) -> str:
    file = folder / VERSION
    try:
        version = file.read_text(encoding="utf-8").strip()
    except OSError as missing:
        raise ImageError(
            f"{folder} is not a checkout of verl: {file} cannot be read. Pass the folder with verl's setup.py."
        ) from missing
    try:
        return str(Version(version))
    except InvalidVersion as invalid:
        raise ImageError(f"{file} has no valid version: {invalid}") from invalid


def _is_left_out(name: str) -> bool:
    return name == "__pycache__" or name.endswith(".pyc") or name.startswith(".")


def _mode(_: str, state: os.stat_result) -> int:
    """Modes in the image do not depend on the checkout's umask."""
    return 0o755 if state.st_mode & 0o100 else 0o644
