"""Locks are resolved for the image's Python; uv is an executable that answers with what it is told to."""

from __future__ import annotations

from pathlib import Path

import pytest

from images import lock
from images.catalog import Catalog
from images.errors import ImageError

CATALOG = Catalog.read()
RESOLVED = ["# from uv", "aiohttp==3.14.5", "nvidia-cudnn-cu13==9.19.0", "torch==2.5.0", "triton==3.1.0", "vllm==0.6.3"]


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A uv that keeps its arguments and inputs of each call in a folder of its own."""
    script = tmp_path / "uv"
    script.write_text(
        "#!/bin/sh\n"
        f"n=$(ls {tmp_path} | grep -c '^call'); mkdir {tmp_path}/call$n; echo \"$*\" > {tmp_path}/call$n/argv\n"
        f"cp $3 $5 $7 {tmp_path}/call$n\n"
        f"printf '%s\\n' {' '.join(repr(line) for line in RESOLVED)}\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def test_a_lock_leaves_out_what_the_base_brings_or_the_build_replaces(uv: Path, tmp_path: Path) -> None:
    path = lock.write(CATALOG.variants["rocm6.2"], tmp_path)

    assert path.read_text().split() == ["aiohttp==3.14.5"]


def test_a_lock_is_resolved_for_the_images_python_with_what_its_base_needs(uv: Path, tmp_path: Path) -> None:
    lock.write(CATALOG.variants["rocm6.2"], tmp_path)

    first, second = uv / "call0", uv / "call1"
    assert "--python-version 3.9 --python-platform x86_64-unknown-linux-gnu" in (first / "argv").read_text()
    assert {"torch==2.5.0", "numpy<2", "ray[default]==2.44.1"} <= set((first / "in.txt").read_text().split())
    assert "numpy<2" not in (second / "in.txt").read_text()
    assert "aiohttp==3.14.5" in (second / "constraints.txt").read_text()


def test_an_override_of_the_catalog_reaches_the_resolver(uv: Path, tmp_path: Path) -> None:
    lock.write(CATALOG.variants["cpu-vllm"], tmp_path)

    assert "transformers==5.19.0" in (uv / "call0/overrides.txt").read_text().split()


def test_without_uv_the_way_to_get_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ImageError, match="pip install uv"):
        lock.write(CATALOG.variants["cpu"], tmp_path)
