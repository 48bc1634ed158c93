"""verl from a checkout or a commit, in place of a release: the content of /opt/verl.

It is copied as it is and not built: a package of Python files needs no more, and an edit costs one layer. Beside it
lies what pip and importlib.metadata ask for, with PEP 610's direct_url.json telling where it came from.
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

from images.catalog.variant import Variant
from images.context.staging import Staging
from images.errors import ImageError
from images.host.paths import VERL_COMMITS
from images.host.process import run

REPOSITORY = "https://github.com/volcengine/verl.git"
INSIDE = "/opt/verl"
VERSION = "verl/version/version"
COMMIT = re.compile(r"[0-9a-f]{40}")
NORMAL = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*))*", re.ASCII)  # a release that PEP 440 leaves as it is
FETCH_TIMEOUT_S = 600.0
GitEnvironment = Callable[[str], Mapping[str, str]]


@dataclass(frozen=True)
class Source:
    """A verl on this machine; ``commit`` is empty for a checkout, whose state is what it is."""

    folder: Path
    version: str
    url: str
    asked: str = ""
    commit: str = ""
    editable: bool = False

    @property
    def label(self) -> str:
        """What tells its image from the release's."""
        return self.commit[:12] or ("editable" if self.editable else "local")

    @property
    def direct_url(self) -> dict[str, Any]:
        if self.commit:
            return {
                "url": self.url,
                "vcs_info": {"vcs": "git", "requested_revision": self.asked, "commit_id": self.commit},
            }
        return {"url": self.url, "dir_info": {"editable": self.editable}}


def find(asked: str, environment: GitEnvironment, *, editable: bool = False, commits: Path = VERL_COMMITS) -> Source:
    """The source that ``--verl`` names: a checkout's folder, ``git+URL@REF``, or ``git:REF`` of verl's own repository.

    ``environment`` says what git is told of a site for a repository. A commit that is here is not asked for again.
    """
    if asked.startswith(("git+", "git:")):
        url, _, reference = asked[4:].rpartition("@") if asked.startswith("git+") else (REPOSITORY, "", asked[4:])
        if editable or not url or not reference:
            raise ImageError(
                f"--verl={asked}: name git+URL@REF or git:REF; only a checkout's folder can be --editable."
            )
        commit = _fetched(url, reference, environment(url), commits)
        folder = commits / commit
        return Source(folder, _version(folder), url, asked=reference, commit=commit)
    folder = Path(asked).expanduser().resolve()
    return Source(folder, _version(folder), folder.as_uri(), asked=asked, editable=editable)


def chosen(variant: Variant, asked: str, editable: bool, environment: GitEnvironment) -> tuple[Variant, Source | None]:
    """A variant with the verl that was asked for, and its source where that is not the release."""
    if not asked:
        if editable:
            raise ImageError("--editable says how a checkout is used: name it with --verl PATH.")
        return variant, None
    source = find(asked, environment, editable=editable)
    return applied(variant, source), source


def applied(variant: Variant, source: Source) -> Variant:
    """The variant with this verl in place of the release's; everything else stays as the catalog has it."""
    installs = {**variant.installs, "verl": source.version}
    return replace(variant, installs=installs, source=source.label, instead_of=variant.installs["verl"])


def stage(source: Source, staging: Staging, name: str) -> None:
    """Tell what becomes /opt/verl, in the folder ``name``; of an editable checkout that is a link to its place."""
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


def _fetched(url: str, reference: str, environment: Mapping[str, str], commits: Path) -> str:
    """The commit of a reference, its verl/ unpacked below ``commits``."""
    if COMMIT.fullmatch(reference) and (commits / reference).is_dir():
        return reference
    commits.mkdir(parents=True, exist_ok=True)
    git = ["git", "-C", str(commits / "repository")]
    run(["git", "init", "--quiet", "--bare", str(commits / "repository")])
    run([*git, "fetch", "--quiet", "--depth", "1", "--", url, reference], environment, FETCH_TIMEOUT_S)
    commit = run([*git, "rev-parse", "FETCH_HEAD^{commit}"]).strip()
    if not (commits / commit).is_dir():
        unpacked = commits / f"{commit}.new"
        shutil.rmtree(unpacked, ignore_errors=True)
        run([*git, "archive", f"--output={commits / commit}.tar", commit, "verl"])
        import tarfile  # a checkout has no use for it

        with tarfile.open(commits / f"{commit}.tar") as archive:
            archive.extractall(unpacked, filter="data")
        (commits / f"{commit}.tar").unlink()
        unpacked.replace(commits / commit)
    return commit


def _version(folder: Path) -> str:
    stated = folder / VERSION
    try:
        told = stated.read_text(encoding="utf-8").strip()
    except OSError as missing:
        raise ImageError(
            f"{folder} is no verl: {stated} cannot be read. Name the folder with verl's setup.py."
        ) from missing
    if NORMAL.fullmatch(told):
        return told
    from packaging.version import InvalidVersion, Version

    try:
        return str(Version(told))
    except InvalidVersion as wrong:
        raise ImageError(f"{stated} holds no version: {wrong}") from wrong


def _is_left_out(name: str) -> bool:
    return name == "__pycache__" or name.endswith(".pyc") or name.startswith(".")


def _mode(_: str, state: os.stat_result) -> int:
    """What every checkout's becomes in an image."""
    return 0o755 if state.st_mode & 0o100 else 0o644
