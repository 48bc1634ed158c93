"""dockerfiles/apt.sh with a fake apt on PATH: versions of the mirror, of the base, and of the pins."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.paths import CHECKOUT

SCRIPT = CHECKOUT / "dockerfiles" / "apt.sh"
DEB = hashlib.sha256(b"a package\n").hexdigest()
PINS = f"# bookworm main\nlibc6 2.36-9 {DEB}\npython3 3.11.2-1 {DEB}\ntini 1:0.19.0-1 {DEB}\n"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base that has libc6; its mirror has python3 3.11.2-1 and tini 1:0.19.0-1."""
    tools = {
        "dpkg-query": 'for name; do :; done; [ "$name" != libc6 ] || echo installed',
        "apt-cache": "case $2 in python3=3.11.2-1 | tini=1:0.19.0-1) ;; *) exit 100 ;; esac",
        "apt-get": f'echo "$*" >> {tmp_path}/calls\n'
        f'[ "$1" != update ] || [ -z "$APT_CONFIG" ] || cat "$APT_CONFIG" "${{APT_CONFIG%/*}}/sources" '
        f"> {tmp_path}/queried\n"
        f'[ "$1" != update ] || [ ! -e {tmp_path}/dead ] || exit 100\n'
        f'case "$*" in *--download-only*) echo "a package" | tee {tmp_path}/python3_3.11.2-1_amd64.deb '
        f"> {tmp_path}/tini_1%3a0.19.0-1_amd64.deb ;; esac",
    }
    for name, body in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "pins").write_text(PINS)
    (tmp_path / "os-release").write_text('NAME="Debian GNU/Linux"\nVERSION_CODENAME=bookworm\n')
    return tmp_path


def run(base: Path, *packages: str, options: Sequence[str] = (), **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{base}:{os.environ['PATH']}", "APT_ARCHIVES": str(base), "TMPDIR": str(base)}
    environment |= variables
    argv = ["sh", str(SCRIPT), *options, str(base / "pins"), *packages]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


def calls(base: Path) -> list[str]:
    return (base / "calls").read_text().splitlines()


def test_packages_missing_from_the_base_are_installed_at_their_pins(base: Path) -> None:
    done = run(base, "python3", "tini")

    assert done.returncode == 0, done.stderr
    install = "install --yes --no-install-recommends"
    pinned = "python3=3.11.2-1 tini=1:0.19.0-1"
    assert calls(base) == ["update", f"{install} --download-only {pinned}", f"{install} {pinned}", "clean"]


def test_version_gone_from_the_mirror_is_named_and_nothing_is_installed(base: Path) -> None:
    (base / "pins").write_text(PINS.replace("3.11.2-1", "3.11.2-9"))

    done = run(base, "python3", "tini")

    assert done.returncode == 1
    assert "the mirror no longer has python3=3.11.2-9: update the pins with invoke image.pins --update" in done.stderr
    assert calls(base) == ["update"]


def test_package_with_other_bytes_is_not_installed(base: Path) -> None:
    (base / "pins").write_text(PINS.replace(f"tini 1:0.19.0-1 {DEB}", f"tini 1:0.19.0-1 {64 * '0'}"))

    done = run(base, "python3", "tini")

    assert done.returncode != 0
    assert "tini_1%3a0.19.0-1_amd64.deb: FAILED" in done.stdout
    assert not [call for call in calls(base) if call.startswith("install") and "--download-only" not in call]


def test_base_with_all_packages_is_left_as_it_is(base: Path) -> None:
    (base / "pins").write_text(f"libc6 2.36-9 {DEB}\n")

    assert run(base, "libc6").returncode == 0
    assert calls(base) == ["update", "clean"]


def test_without_pins_the_mirrors_version_is_installed_with_a_warning(base: Path) -> None:
    (base / "pins").write_text("")

    done = run(base, "tini")

    assert calls(base) == ["update", "install --yes --no-install-recommends tini", "clean"]
    assert "WARNING: tini without a version" in done.stdout


@pytest.mark.parametrize("pinned", [True, False])
def test_downloaded_packages_are_verified_without_installation(base: Path, pinned: bool) -> None:
    (base / "pins").write_text(PINS if pinned else "")
    packages = "python3=3.11.2-1 tini=1:0.19.0-1" if pinned else "python3 tini"

    done = run(base, "python3", "tini", options=["--download", str(base)])

    assert done.returncode == 0, done.stderr
    fetched = f"install --yes --no-install-recommends --download-only -o Dir::Cache::Archives={base} {packages}"
    assert calls(base) == ["update", fetched, "clean"]
    (base / "pins").write_text(PINS.replace(f"tini 1:0.19.0-1 {DEB}", f"tini 1:0.19.0-1 {64 * '0'}"))
    assert run(base, "python3", "tini", options=["--download", str(base)]).returncode != 0


def sources(base: Path, suites: str = "bookworm main;bookworm-updates main") -> dict[str, str]:
    """The variables that a Dockerfile sets for apt.sh."""
    (base / "site").mkdir()
    (base / "site/apt").write_text('Acquire::Retries "3";\n')
    (base / "site/sources").write_text("the site's\n")
    given = {"APT_MIRROR": "http://deb.debian.org/debian", "APT_SUITES": suites, "APT_CONFIG": str(base / "site/apt")}
    return {**given, "OS_RELEASE": str(base / "os-release"), "SITE_SOURCES": str(base / "none")}


def test_only_the_sources_of_the_pins_are_queried(base: Path) -> None:
    done = run(base, "tini", **sources(base))

    assert done.returncode == 0, done.stderr
    configuration, *lines = (base / "queried").read_text().split('SourceParts "-";\n')
    assert 'Acquire::Retries "3";' in configuration
    assert 'Dir::Etc::SourceList "' in configuration
    assert lines == [
        "deb http://deb.debian.org/debian bookworm main\ndeb http://deb.debian.org/debian bookworm-updates main\n"
    ]


def test_a_sites_sources_are_not_replaced(base: Path) -> None:
    given = sources(base)

    run(base, "tini", **{**given, "SITE_SOURCES": given["APT_CONFIG"]})

    assert (base / "queried").read_text() == 'Acquire::Retries "3";\nthe site\'s\n'


def test_a_base_of_another_distribution_keeps_its_sources(base: Path) -> None:
    done = run(base, "tini", **sources(base, "noble main universe"))

    assert "this base is bookworm, not noble: its own sources are queried" in done.stdout
    assert (base / "queried").read_text().endswith("the site's\n")


def test_a_dead_source_ends_no_installation(base: Path) -> None:
    (base / "dead").touch()

    done = run(base, "python3", "tini")

    assert done.returncode == 0, done.stderr
    assert "WARNING: not every source of this base answers" in done.stdout
    assert calls(base)[-1] == "clean"
