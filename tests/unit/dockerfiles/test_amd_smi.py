"""Repair of a TheRock base: amdsmi from the SDK's sources, and rocm_sdk without RTLD_GLOBAL."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import amd_smi
import guard
import pytest


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on sys.path with the SDK's two packages, as TheRock's wheels install them."""
    source = tmp_path / "_rocm_sdk_core" / "share" / "amd_smi"
    (source / "amdsmi").mkdir(parents=True)
    (source / "setup.py").touch()
    (tmp_path / "_rocm_sdk_core" / "__init__.py").touch()
    (tmp_path / "rocm_sdk").mkdir()
    (tmp_path / "rocm_sdk" / "__init__.py").write_text("def preload(rtld_global: bool = True): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The arguments of pip, and the files of the installed folder after them."""
    calls: list[list[str]] = []
    monkeypatch.setattr(guard, "build_tools", lambda: nullcontext({"PYTHONPATH": "/tools"}))
    monkeypatch.setattr(
        guard, "pip", lambda argv, _: calls.append([*argv, *sorted(path.name for path in Path(argv[-1]).iterdir())])
    )
    return calls


def test_amdsmi_is_built_of_a_copy_of_the_sdks_sources(packages: Path, installed: list[list[str]]) -> None:
    amd_smi.install()

    ((verb, *flags, source, package, setup),) = installed
    assert (verb, package, setup) == ("install", "amdsmi", "setup.py")
    assert {"--no-index", "--no-deps", "--no-build-isolation"} <= set(flags)
    assert not source.startswith(str(packages))


def test_amdsmi_of_the_base_is_kept(packages: Path, installed: list[list[str]]) -> None:
    (packages / "amdsmi").mkdir()
    (packages / "amdsmi" / "__init__.py").touch()

    amd_smi.install()

    assert installed == []


def test_the_sdk_loads_its_libraries_locally_also_if_it_is_repaired_twice(packages: Path) -> None:
    for _ in range(2):
        amd_smi.load_locally()

        assert (packages / "rocm_sdk/__init__.py").read_text() == "def preload(rtld_global: bool = False): ...\n"


def test_an_unknown_sdk_fails_with_the_place(packages: Path) -> None:
    (packages / "rocm_sdk/__init__.py").write_text("def preload(mode: int): ...\n")
    with pytest.raises(SystemExit, match=r"rocm_sdk/__init__.py has no `rtld_global: bool = True`"):
        amd_smi.load_locally()

    (packages / "_rocm_sdk_core/share/amd_smi/amdsmi").rename(packages / "elsewhere")
    with pytest.raises(SystemExit, match="has no Python package amdsmi"):
        amd_smi.install()


def test_another_base_is_refused() -> None:
    with pytest.raises(SystemExit, match="it is not TheRock's ROCm"):
        amd_smi.install()
