"""The guarded steps of every GPU image on the described packages of its base: no new conflict that is not tolerated.

The descriptions are images/pins/bases/. Each test of an old pin names the review's finding that it keeps away.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import guard
import pytest
from packaging.utils import canonicalize_name

from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.pins import base_packages, locks, requirements
from images.pins.requirements import Distribution
from tests.support.images import described_base
from tests.support.images.described_base import DescribedBase

CATALOG = Catalog.read()
BASES = base_packages.read()
ON_A_BASE = {each.name: each for each in CATALOG.variants.values() if each.platform != "cpu" and not each.base_made}


def build(variant: Variant, folder: Path, lock: str = "", **changed: Distribution) -> None:
    """Build a variant on its described base, of which some packages are changed."""
    described = BASES[variant.base]
    packages: Mapping[str, Distribution] = {**base_packages.packages(described), **changed}
    base = DescribedBase(folder, packages, described.python, variant.machine)
    lock = lock or locks.path(variant).read_text(encoding="utf-8")
    described_base.build(guard, base, variant, lock, folder)


def pinned(name: str, version: str) -> Distribution:
    """A version of a package that the base does not have, with the requirements of the base's version left out."""
    return Distribution(name, version)


def test_every_base_of_a_gpu_image_is_described() -> None:
    assert {each.base for each in ON_A_BASE.values()} - set(BASES) == set()


@pytest.mark.parametrize("name", ON_A_BASE)
def test_a_build_makes_no_conflict_that_is_not_tolerated(name: str, tmp_path: Path) -> None:
    build(ON_A_BASE[name], tmp_path)


@pytest.mark.parametrize("name", ON_A_BASE)
def test_the_described_base_has_the_versions_that_the_catalog_says(name: str) -> None:
    variant = ON_A_BASE[name]
    described = base_packages.packages(BASES[variant.base])

    found = {package: described[package].version for package in variant.has}
    assert {
        package: version for package, version in variant.has.items() if not found[package].startswith(version)
    } == {}
    assert BASES[variant.base].python == variant.python
    assert BASES[variant.base].glibc == locks.GLIBC[variant.apt_suites[0].split()[0]]


def test_vllm_0_6_3_without_its_lm_format_enforcer_fails_on_rocm6_2(tmp_path: Path) -> None:
    pin, variant = "lm-format-enforcer", ON_A_BASE["rocm6.2"]
    lock = locks.path(variant).read_text(encoding="utf-8").splitlines(keepends=True)
    variant = replace(variant, installs={name: each for name, each in variant.installs.items() if name != pin})

    with pytest.raises(SystemExit, match=r"vllm 0\.6\.3\+rocm\S* has requirement lm-format-enforcer==0\.10\.6"):
        build(variant, tmp_path, "".join(line for line in lock if not line.startswith(f"{pin}==")))


@pytest.mark.parametrize(
    ("name", "package", "fitting"),
    [
        ("cu130", "megatron-bridge", "5.8.1"),
        ("cu130-sgl", "megatron-bridge", "5.8.1"),
        ("rocm7.14", "sglang", "5.12.1"),
    ],
)
def test_transformers_5_9_fails_where_a_package_of_the_base_excludes_it(
    tmp_path: Path, name: str, package: str, fitting: str
) -> None:
    variant = replace(ON_A_BASE[name], tolerates=[])

    with pytest.raises(
        SystemExit, match=rf"{package} \S+ has requirement transformers\S+, but you have transformers 5\.9"
    ):
        build(variant, tmp_path, transformers=pinned("transformers", fitting))


@pytest.mark.parametrize(("ray", "fails"), [("2.46.0", True), ("2.52.1", True), ("2.44.1", False)])
def test_ray_above_the_bound_of_vllm_on_rocm_6_conflicts(ray: str, fails: bool) -> None:
    # ROCm/vllm requirements/rocm.txt at v0.8.5+rocm, v0.9.1+rocm and 0909_rc3; vLLM for CUDA has no such bound.
    vllm = Distribution("vllm", "0.8.5+rocm631", ["ray>=2.10.0,<2.45.0"])

    found = requirements.conflicts({"vllm": vllm, "ray": Distribution("ray", ray)}, "3.12")

    line = f"vllm 0.8.5+rocm631 has requirement ray<2.45.0,>=2.10.0, but you have ray {ray}."
    assert found == ([line] if fails else [])


def test_conflicts_are_those_that_pip_check_prints(tmp_path: Path) -> None:
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    packages = base_packages.packages(BASES[ON_A_BASE["cu130"].base])
    base = DescribedBase(tmp_path, packages, python)

    argv = [sys.executable, "-c", PIP_CHECK, str(base.site)]
    printed = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False).stdout.splitlines()

    expected = requirements.conflicts(packages, python)
    assert len(expected) > 5
    assert {complaint(line) for line in printed if "requires" in line or "requirement" in line} == {
        complaint(line) for line in expected
    }


# pip's own code, but only the described packages on the path that it looks at.
PIP_CHECK = """
import sys
import pip._internal.cli.main as pip
sys.path[:] = [path for path in sys.path if "site-packages" not in path]
sys.path.insert(0, sys.argv[1])
pip.main(["check"])
"""


def complaint(line: str) -> tuple[str, str]:
    """Package and required package of a complaint: versions of pip write ranges differently."""
    found = re.match(r"(\S+) \S+ (?:has requirement|requires) ([A-Za-z0-9._-]+)", line)
    assert found, line
    return canonicalize_name(found[1]), canonicalize_name(found[2])
