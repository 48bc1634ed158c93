"""What is pinned, and what is told where it is not: all from files; indexes and mirrors are executables on PATH."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from images.catalog import verl_releases
from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.errors import ImageError, NotPinned
from images.pins import apt, bases, locks, pins, torch_wheels
from tests.support.images.fake_registry import FakeRegistry

CATALOG = Catalog.read()
CPU, ROCM = CATALOG.variants["cpu"], CATALOG.variants["rocm6.2"]


def of(*variants: Variant) -> Catalog:
    return Catalog({variant.name: variant for variant in variants}, {})


def test_the_whole_catalog_is_pinned_and_checked_in_less_than_a_second() -> None:
    started = time.monotonic()
    told = pins.check(CATALOG).splitlines()

    assert time.monotonic() - started < 1
    assert told[0].startswith(f"{len(CATALOG.variants)} variants, ")
    assert "docker.io/verlai/verl:vllm024.dev2: digest unknown: no registry asked yet" in told
    assert not [line for line in told if line.startswith(("bookworm", ROCM.base))]


@pytest.fixture
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of locks with those of the two variants alone."""
    for variant in (CPU, ROCM):
        (tmp_path / locks.path(variant).name).write_bytes(locks.path(variant).read_bytes())
    monkeypatch.setattr(locks, "LOCKS", tmp_path)
    return tmp_path


def test_a_lock_without_a_hash_is_told_by_its_line(own_locks: Path) -> None:
    with locks.path(CPU, own_locks).open("a") as file:
        file.write("left-pad==1.0\n")

    with pytest.raises(NotPinned, match=r"not by version and sha256: left-pad==1\.0"):
        pins.check(of(CPU, ROCM))


def test_a_pin_that_changed_without_its_lock_is_told_with_the_command(own_locks: Path) -> None:
    bumped = replace(CPU, installs={**CPU.installs, "ray": "2.60.1"})

    with pytest.raises(
        NotPinned, match=r"(?s)cpu: .* is missing: `invoke image.lock --variant cpu`.* is the lock of no variant"
    ):
        pins.check(of(bumped, ROCM))


@pytest.mark.parametrize(
    ("variant", "told"),
    [
        (replace(ROCM, replaces={"vllm": replace(ROCM.replaces["vllm"], commit="v0.6.3")}), "is not a whole commit"),
        (replace(ROCM, base_digest="latest"), "'latest' is no digest"),
    ],
)
def test_what_may_be_another_thing_tomorrow_is_told(own_locks: Path, variant: Variant, told: str) -> None:
    with pytest.raises(NotPinned, match=told):
        pins.check(of(CPU, variant))


def test_packages_of_the_distribution_that_are_not_all_pinned_are_told(own_locks: Path) -> None:
    with pytest.raises(NotPinned, match=r"bookworm-x86_64\.txt lacks a package of .*gdb"):
        pins.check(of(replace(CPU, apt_packages=[*CPU.apt_packages, "gdb"]), ROCM))


def test_a_build_tool_without_a_hash_is_told(monkeypatch: pytest.MonkeyPatch, own_locks: Path, tmp_path: Path) -> None:
    (tmp_path / "build-tools.txt").write_text("setuptools==80.10.2\n")
    monkeypatch.setattr(pins, "BUILD_TOOLS", tmp_path / "build-tools.txt")

    with pytest.raises(NotPinned, match=r"build-tools\.txt: not by version and sha256: setuptools==80\.10\.2"):
        pins.check(of(CPU, ROCM))


def test_every_base_of_debian_is_pinned_by_version_and_hash_for_every_machine() -> None:
    for variant in CATALOG.variants.values():
        assert apt.covers(variant) == (variant.platform == "cpu")


def test_a_registry_is_asked_for_the_digest_and_the_compression_of_a_base(server: FakeRegistry, tmp_path: Path) -> None:
    reference = f"{server.host}/team/verl.cpu:1"

    failed = bases.update([reference, f"{server.host}/team/verl.cpu:none"], tmp_path / "bases.json")

    assert list(failed) == [f"{server.host}/team/verl.cpu:none"]
    known = bases.read(tmp_path / "bases.json")[reference]
    assert known.digest.startswith("sha256:")
    assert known.layers == "gzip"


def test_a_registry_that_is_silent_is_asked_once_and_what_was_known_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bases.json"
    path.write_text(json.dumps({"r.example/a:1": {"digest": "sha256:old", "layers": "gzip", "source": "here"}}))
    asked = []

    def silence(reference: str) -> bases.Base:
        asked.append(reference)
        raise bases.RegistryFailed("r.example does not answer: no route")

    monkeypatch.setattr(bases, "ask", silence)

    failed = bases.update(["r.example/a:1", "r.example/b:1"], path)

    assert asked == ["r.example/a:1"]
    assert set(failed) == {"r.example/a:1", "r.example/b:1"}
    assert bases.read(path)["r.example/a:1"].digest == "sha256:old"


def test_whom_an_update_could_not_ask_is_told_and_the_others_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answers(name: str) -> Callable[..., Path]:
        def answer(*_: object) -> Path:
            asked.append(name)
            return Path(name)

        return answer

    def silent(variant: Variant) -> Path:
        raise ImageError(f"no mirror for {variant.name}")

    monkeypatch.setattr(verl_releases, "update", answers("metadata"))
    monkeypatch.setattr(bases, "update", lambda _: {"r.example/a:1": "r.example does not answer"})
    monkeypatch.setattr(apt, "update", silent)
    monkeypatch.setattr(torch_wheels, "update", answers("wheels"))
    monkeypatch.setattr(locks, "write_all", lambda _: [Path("a.txt")])

    told = list(pins.update(of(CPU, ROCM)))

    assert "r.example/a:1: r.example does not answer" in told
    assert "bookworm-x86_64.txt: no mirror for cpu" in told
    assert asked == ["metadata", "metadata", "wheels"]
    assert told[-1] == "a.txt"


PACKAGES = """Package: tini
Version: 0.19.0-1
SHA256: aa11

Package: libc6
Version: 2.36-9
Installed-Size: 12987
SHA256: bb22
"""


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An apt that has two packages, and keeps what it is configured with."""
    (tmp_path / "shown").write_text(PACKAGES)
    tools = {
        "apt-get": f"cat $APT_CONFIG $(dirname $APT_CONFIG)/sources > {tmp_path}/configuration\n"
        """case "$*" in *--print-uris*) echo "'http://m/t_1.deb' tini_0.19.0-1_arm64.deb 9 MD5Sum:x"; """
        """echo "'http://m/l.deb' libc6_2.36-9_arm64.deb 9 MD5Sum:y" ;; esac\n""",
        "apt-cache": f'echo "$*" > {tmp_path}/asked; cat {tmp_path}/shown\n',
    }
    for name, body in tools.items():
        (tmp_path / name).write_text("#!/bin/sh\n" + body)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def test_a_mirror_is_asked_for_the_cells_suites_and_architecture_on_an_empty_system(mirror: Path) -> None:
    variant = CATALOG.variants["cpu-aarch64"]

    written = apt.update(variant, folder=mirror)

    assert written.read_text().splitlines() == [
        "# bookworm main; bookworm-updates main",
        "libc6 2.36-9 bb22",
        "tini 0.19.0-1 aa11",
    ]
    configuration = (mirror / "configuration").read_text()
    assert 'APT::Architecture "arm64";' in configuration
    assert "deb http://deb.debian.org/debian bookworm-updates main" in configuration
    assert (mirror / "asked").read_text().split()[-2:] == ["tini", "libc6"]


def test_without_apt_the_way_out_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ImageError, match="run this on Debian or Ubuntu"):
        apt.update(CPU)


def test_the_wheel_of_torch_is_pinned_where_an_index_was_asked() -> None:
    assert torch_wheels.pinned("2.13.0", "3.11", "x86_64")
    assert not torch_wheels.pinned("2.13.0", "3.11", "aarch64")
    assert not torch_wheels.pinned("2.13.1", "3.11", "x86_64")
