"""Check and update of pins; indexes and mirrors are executables on PATH."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from images.catalog import verl_releases
from images.catalog.catalog import Catalog, PinnedBase, read_bases
from images.catalog.variant import Variant
from images.errors import ImageError, NotPinned, RegistryFailed
from images.pins import apt, base_packages, locks, pins, requirements, torch_wheels, verl_python
from tests.support.images.fake_registry import FakeRegistry
from tests.support.paths import CHECKOUT

CATALOG = Catalog.read()
CPU, ROCM = CATALOG.variants["cpu"], CATALOG.variants["rocm6.2"]


def catalog_of(*variants: Variant) -> Catalog:
    return Catalog({variant.name: variant for variant in variants}, {})


def test_whole_catalog_is_pinned_and_checked_in_less_than_a_second() -> None:
    started = time.process_time()
    lines = pins.check(CATALOG).splitlines()

    assert time.process_time() - started < 1
    assert lines[0].startswith(f"{len(CATALOG.variants)} variants, ")
    assert "docker.io/verlai/verl:vllm017.dev2: digest unknown: registry not queried yet" in lines
    assert not [line for line in lines if line.startswith(("bookworm", ROCM.base))]


@pytest.fixture
def two_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with only the locks of the two variants."""
    for variant in (CPU, ROCM):
        (tmp_path / locks.path(variant).name).write_bytes(locks.path(variant).read_bytes())
    monkeypatch.setattr(locks, "LOCKS", tmp_path)
    return tmp_path


def test_lock_line_without_a_hash_is_named(two_locks: Path) -> None:
    with locks.path(CPU, two_locks).open("a") as file:
        file.write("left-pad==1.0\n")

    with pytest.raises(NotPinned, match=r"not by version and sha256: left-pad==1\.0"):
        pins.check(catalog_of(CPU, ROCM))


def test_pin_changed_without_its_lock_names_the_command(two_locks: Path) -> None:
    bumped = replace(CPU, installs={**CPU.installs, "ray": "2.60.1"})

    with pytest.raises(
        NotPinned, match=r"(?s)cpu: .* is missing: `invoke image.lock --variant cpu`.* is the lock of no variant"
    ):
        pins.check(catalog_of(bumped, ROCM))


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        (
            replace(ROCM, replaces={"vllm": replace(ROCM.replaces["vllm"], commit="v0.6.3")}),
            "is not a full commit hash",
        ),
        (replace(ROCM, base_digest="latest"), "'latest' is not a digest"),
    ],
)
def test_movable_source_or_base_fails(two_locks: Path, variant: Variant, message: str) -> None:
    with pytest.raises(NotPinned, match=message):
        pins.check(catalog_of(CPU, variant))


def test_unpinned_package_of_the_distribution_fails(two_locks: Path) -> None:
    with pytest.raises(NotPinned, match=r"bookworm-x86_64\.txt does not pin every package of .*gdb"):
        pins.check(catalog_of(replace(CPU, apt_packages=[*CPU.apt_packages, "gdb"]), ROCM))


def test_build_tool_without_a_hash_fails(monkeypatch: pytest.MonkeyPatch, two_locks: Path, tmp_path: Path) -> None:
    (tmp_path / "build-tools.txt").write_text("setuptools==80.10.2\n")
    monkeypatch.setattr(pins, "BUILD_TOOLS", tmp_path / "build-tools.txt")

    with pytest.raises(NotPinned, match=r"build-tools\.txt: not by version and sha256: setuptools==80\.10\.2"):
        pins.check(catalog_of(CPU, ROCM))


def test_packages_of_debian_bases_are_pinned_for_every_machine() -> None:
    for variant in CATALOG.variants.values():
        assert apt.covers(variant) == (variant.platform == "cpu" or variant.from_wheels)


def test_the_security_page_counts_images_without_pins() -> None:
    variants = list(CATALOG.variants.values())
    by_tag = sum(not each.base_digest for each in variants)
    unpinned = sum(not apt.text(each) for each in variants)

    text = " ".join((CHECKOUT / "docs/security.md").read_text(encoding="utf-8").split())
    assert (
        f"{by_tag} of {len(variants)} images are built on a base by tag, {unpinned} on apt packages without pins"
        in text
    )
    without_token = [each for each in variants if Version(each.installs["ray"]) < Version("2.52")]
    assert f"{len(without_token)} of the {len(variants)} images in [tags.md]" in text


def test_digest_and_compression_of_a_base_are_read_from_its_registry(server: FakeRegistry, tmp_path: Path) -> None:
    reference = f"{server.host}/team/verl.cpu:1"

    failed = pins.update_bases([reference, f"{server.host}/team/verl.cpu:none"], tmp_path / "bases.json")

    assert list(failed) == [f"{server.host}/team/verl.cpu:none"]
    base = read_bases(tmp_path / "bases.json")[reference]
    assert base.digest.startswith("sha256:")
    assert base.layers == "gzip"


def test_silent_registry_is_queried_once_and_old_digests_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bases.json"
    path.write_text(json.dumps({"r.example/a:1": {"digest": "sha256:old", "layers": "gzip", "source": "here"}}))
    queried = []

    def fail(reference: str) -> PinnedBase:
        queried.append(reference)
        raise RegistryFailed("r.example does not answer: no route")

    monkeypatch.setattr(pins, "query_base", fail)

    failed = pins.update_bases(["r.example/a:1", "r.example/b:1"], path)

    assert queried == ["r.example/a:1"]
    assert set(failed) == {"r.example/a:1", "r.example/b:1"}
    assert read_bases(path)["r.example/a:1"].digest == "sha256:old"


def test_update_reports_failures_and_queries_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    queried: list[str] = []

    def returns(name: str) -> Callable[..., Path]:
        def answer(*_: object) -> Path:
            queried.append(name)
            return Path(name)

        return answer

    def fail(variant: Variant) -> Path:
        raise ImageError(f"no mirror for {variant.name}")

    monkeypatch.setattr(verl_releases, "update", returns("metadata"))
    monkeypatch.setattr(verl_python, "update", returns("python"))
    monkeypatch.setattr(pins, "update_bases", lambda _: {"r.example/a:1": "r.example does not answer"})
    monkeypatch.setattr(apt, "update", fail)
    monkeypatch.setattr(torch_wheels, "update", returns("wheels"))
    monkeypatch.setattr(base_packages, "update", lambda: [Path("base.txt")])
    monkeypatch.setattr(requirements, "update", returns("requirements"))
    monkeypatch.setattr(locks, "write_all", lambda _: [Path("a.txt")])
    monkeypatch.setattr(locks, "update_requirements", lambda _: Path("requirements.json"))

    lines = list(pins.update(catalog_of(CPU, ROCM)))

    assert "r.example/a:1: r.example does not answer" in lines
    assert "bookworm-x86_64.txt: no mirror for cpu" in lines
    assert queried == ["metadata", "metadata", "python", "wheels", "requirements"]
    assert lines[-3:] == ["base.txt", "a.txt", "requirements.json"]


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
    """An apt with two packages, which logs its configuration and arguments."""
    (tmp_path / "shown").write_text(PACKAGES)
    tools = {
        "apt-get": f"cat $APT_CONFIG $(dirname $APT_CONFIG)/sources > {tmp_path}/configuration\n"
        """case "$*" in *--print-uris*) echo "'http://m/t_1.deb' tini_0.19.0-1_arm64.deb 9 MD5Sum:x"; """
        """echo "'http://m/l.deb' libc6_2.36-9_arm64.deb 9 MD5Sum:y" ;; esac\n""",
        "apt-cache": f'echo "$*" > {tmp_path}/arguments; cat {tmp_path}/shown\n',
    }
    for name, body in tools.items():
        (tmp_path / name).write_text("#!/bin/sh\n" + body)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def test_mirror_is_queried_on_an_empty_system_with_suites_and_architecture_of_the_variant(mirror: Path) -> None:
    variant = CATALOG.variants["cpu-aarch64"]

    written = apt.update(variant, folder=mirror)

    assert written.read_text().splitlines() == [
        "# bookworm main; bookworm-updates main",
        "libc6 2.36-9 bb22",
        "tini 0.19.0-1 aa11",
    ]
    configuration = (mirror / "configuration").read_text()
    assert 'APT::Architecture "arm64";' in configuration
    assert "http://deb.debian.org/debian bookworm-updates main" in configuration
    assert (mirror / "arguments").read_text().split()[-2:] == ["tini", "libc6"]


def test_update_without_apt_names_the_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ImageError, match="run this on Debian or Ubuntu"):
        apt.update(CPU)


def test_wheel_of_torch_is_pinned_only_if_its_index_was_queried() -> None:
    assert torch_wheels.pinned("2.13.0", "3.11", "x86_64")
    assert not torch_wheels.pinned("2.13.0", "3.11", "aarch64")
    assert not torch_wheels.pinned("2.13.1", "3.11", "x86_64")
