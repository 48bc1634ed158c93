"""Lock files: resolution for the image's Python, names, marks; uv is a fake executable."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import guard
import pytest

from images.catalog.catalog import Catalog
from images.catalog.variant import Lock
from images.errors import CommandFailed, ImageError
from images.pins import locks

CATALOG = Catalog.read()
RESOLVED = """
lock-version = "1.0"
[[packages]]
name = "aiohttp"
version = "3.14.5"
sdist = { hashes = { sha256 = "5d" } }
wheels = [{ hashes = { sha256 = "b2" } }, { hashes = { sha256 = "a1" } }]
[[packages]]
name = "antlr4-python3-runtime"
version = "4.9.3"
sdist = { hashes = { sha256 = "c3" } }
"""
BASE_PACKAGES = {"nvidia-cudnn-cu13": "9.19.0", "torch": "2.5.0", "triton": "3.1.0", "vllm": "0.6.3"}


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A uv that keeps arguments and inputs of each call in a separate folder."""
    others = "".join(
        f'[[packages]]\nname = "{name}"\nversion = "{version}"\nsdist.hashes.sha256 = "d4"\n'
        for name, version in BASE_PACKAGES.items()
    )
    (tmp_path / "resolved").write_text(RESOLVED + others)
    versions = {"aiohttp": "3.14.5", "antlr4-python3-runtime": "4.9.3", **BASE_PACKAGES}
    (tmp_path / "versions").write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))
    script = tmp_path / "uv"
    script.write_text(
        "#!/bin/sh\n"
        f"n=$(ls {tmp_path} | grep -c '^call'); mkdir {tmp_path}/call$n; echo \"$*\" > {tmp_path}/call$n/argv\n"
        f"cp $3 $5 $7 {tmp_path}/call$n\n"
        f'for last; do [ "$flag" != --output-file ] || {{ cp $last {tmp_path}/call$n/preferred.txt; '
        f"cat {tmp_path}/versions > $last; exit; }}; flag=$last; done\n"
        f"cat {tmp_path}/resolved\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def test_lock_omits_packages_of_the_base_and_replaced_ones(uv: Path, tmp_path: Path) -> None:
    path = locks.write(CATALOG.variants["rocm6.2"], tmp_path)

    names = [line.split("==")[0] for line in path.read_text().splitlines() if not line.startswith("#")]
    assert names == ["aiohttp", "antlr4-python3-runtime"]


def test_lock_of_wheels_alone_has_torch_and_the_libraries_of_cuda(uv: Path, tmp_path: Path) -> None:
    text = locks.write(CATALOG.variants["cu130-wheels"], tmp_path).read_text()

    names = [line.split("==")[0] for line in text.splitlines() if not line.startswith("#")]
    assert names == ["aiohttp", "antlr4-python3-runtime", *BASE_PACKAGES]
    assert [line.split("==")[0] for line in locks.select(text, locks.is_of_torch).splitlines()] == [
        "nvidia-cudnn-cu13",
        "torch",
        "triton",
    ]


def test_line_has_hashes_of_wheels_or_of_the_source_with_a_mark(uv: Path, tmp_path: Path) -> None:
    lines = locks.write(CATALOG.variants["rocm6.2"], tmp_path).read_text().splitlines()

    assert "aiohttp==3.14.5 --hash=sha256:a1 --hash=sha256:b2" in lines
    assert "antlr4-python3-runtime==4.9.3 --hash=sha256:c3  # sdist" in lines
    assert locks.SDIST == guard.SDIST


def test_only_one_package_of_all_locks_has_no_wheel() -> None:
    # The guard installs only wheels from an index: a source without the mark ends the build.
    lines = [line for path in locks.LOCKS.glob("*.txt") for line in path.read_text().splitlines()]
    marked = {line for line in lines if not line.startswith("#") and "#" in line}

    assert {guard.name_of(line) for line in marked} == {"antlr4-python3-runtime"}
    assert all(line.endswith(f"  {guard.SDIST}") for line in marked)


def test_lock_is_resolved_for_the_images_python_and_its_base(uv: Path, tmp_path: Path) -> None:
    locks.write(CATALOG.variants["rocm6.2"], tmp_path)

    first, second = uv / "call0", uv / "call1"
    assert "--python-version 3.9 --python-platform x86_64-manylinux_2_31" in (first / "argv").read_text()
    assert {"torch==2.5.0", "numpy<2", "ray[default]==2.44.1"} <= set((first / "in.txt").read_text().split())
    assert "numpy<2" not in (second / "in.txt").read_text()
    assert "aiohttp==3.14.5" in (second / "constraints.txt").read_text()


def test_lock_for_aarch64_is_resolved_for_aarch64(uv: Path, tmp_path: Path) -> None:
    locks.write(CATALOG.variants["cpu-aarch64"], tmp_path)

    assert "--python-platform aarch64-manylinux_2_36" in (uv / "call0/argv").read_text()


def test_engine_of_a_cuda_base_is_resolved_with_the_lock_but_not_of_a_rocm_base(uv: Path, tmp_path: Path) -> None:
    locks.write(CATALOG.variants["cu130"], tmp_path)
    locks.write(CATALOG.variants["rocm7.14"], tmp_path)

    assert "vllm==0.24.0" in (uv / "call0/in.txt").read_text().split()
    assert "vllm" not in (uv / "call2/in.txt").read_text()


def test_override_of_the_catalog_reaches_the_resolver(uv: Path, tmp_path: Path) -> None:
    locks.write(CATALOG.variants["cpu-vllm"], tmp_path)

    assert "transformers==5.19.0" in (uv / "call0/overrides.txt").read_text().split()


def test_only_variants_with_the_same_inputs_share_a_lock() -> None:
    variant = CATALOG.variants["rocm6.2"]

    assert locks.path(CATALOG.variants["rocm6.2"].for_gpus(["gfx942"])) == locks.path(variant)
    for changed in (
        replace(variant, python="3.10"),
        replace(variant, machine="aarch64"),
        replace(variant, installs={**variant.installs, "ray": "2.44.0"}),
        replace(variant, protected=["torch"]),
        replace(variant, has={**variant.has, "torch": "2.5.1"}),
        replace(variant, lock=Lock()),
    ):
        assert locks.path(changed) != locks.path(variant)


def test_write_all_resolves_each_lock_once_and_removes_stale_ones(uv: Path, tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    folder.mkdir()
    (folder / "old.txt").touch()
    one = CATALOG.variants["rocm6.2"]
    catalog = Catalog({"rocm6.2": one, "same": replace(one, rollout="sglang", compiled_for=["gfx942"])}, {})

    written = locks.write_all(catalog, folder)

    assert [*folder.iterdir()] == written == [locks.path(CATALOG.variants["rocm6.2"], folder)]
    assert len([*tmp_path.glob("call*")]) == 2


def test_uv_beside_this_python_is_found_without_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copy("/bin/false", tmp_path / "uv")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))

    with pytest.raises(CommandFailed, match=f"^{tmp_path}/uv pip compile"):
        locks.write(CATALOG.variants["cpu"], tmp_path)


def test_missing_uv_names_the_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))

    with pytest.raises(ImageError, match="pip install uv"):
        locks.write(CATALOG.variants["cpu"], tmp_path)
