"""Compilation in a build: all installed packages, to the same bytes on any machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from images.context.render import TEMPLATES

# Objects left by earlier compilations of a process decide whether marshal marks a name: these leave different ones.
MODULES = {
    f"m{number:02}.py": f"import os\nname_{number % 3} = x in {{'a{number}', 'b'}}\ndef f(): return {number} is 1\n"
    for number in range(40)
}


def installed(site: Path, name: str, files: dict[str, str]) -> None:
    """Write a distribution as pip does with --no-compile."""
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    facts = site / f"{name.replace('-', '_')}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (facts / "RECORD").write_text("".join(f"{path},,\n" for path in [*files, "gone/since.py"]))


def compiled(
    site: Path, *arguments: str, prefix: Sequence[str] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site), "SOURCE_DATE_EPOCH": "315532800", **variables}
    argv = [*prefix, sys.executable, str(TEMPLATES / "compile.py"), *arguments]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


def pycs(site: Path) -> dict[str, bytes]:
    return {str(path.relative_to(site)): path.read_bytes() for path in site.rglob("*.pyc")}


def test_only_the_named_packages_are_compiled(tmp_path: Path) -> None:
    installed(tmp_path, "new-one", {"one/__init__.py": "x = 1\n", "one/data.txt": "", "alone.py": "y = 2\n"})
    installed(tmp_path, "new.two", {"two/__init__.py": "z = 3\n"})
    installed(tmp_path, "of-the-base", {"base/__init__.py": ""})
    (tmp_path / "requirements.txt").write_text("new_one==1.0 --hash=sha256:00\n\n")

    done = compiled(tmp_path, "--installed", str(tmp_path / "requirements.txt"), "new-two")

    assert (done.returncode, done.stdout) == (0, "compile: 3 files\n")
    names = {path.replace(f".{sys.implementation.cache_tag}", "") for path in pycs(tmp_path)}
    assert names == {"one/__pycache__/__init__.pyc", "__pycache__/alone.pyc", "two/__pycache__/__init__.pyc"}


def test_first_package_of_a_name_on_the_path_is_compiled(tmp_path: Path) -> None:
    mine, bases = tmp_path / "mine", tmp_path / "base"
    installed(mine, "twice", {"twice.py": ""})
    installed(bases, "twice", {"twice.py": ""})

    assert compiled(mine, "twice", PYTHONPATH=f"{mine}:{bases}").returncode == 0
    assert (len(pycs(mine)), len(pycs(bases))) == (1, 0)


def test_package_installed_by_setup_py_is_found_by_its_top_level(tmp_path: Path) -> None:
    facts = tmp_path / "old-1.0-py3.11.egg-info"
    facts.mkdir()
    (facts / "PKG-INFO").write_text("Metadata-Version: 1.2\nName: old\nVersion: 1.0\n")
    (facts / "SOURCES.txt").write_text("src/old/__init__.py\nsrc/old/more.py\n")
    (facts / "top_level.txt").write_text("old\nsingle\n")
    (tmp_path / "old").mkdir()
    for name in ("old/__init__.py", "old/more.py", "single.py"):
        (tmp_path / name).write_text("")

    assert compiled(tmp_path, "old").stdout == "compile: 3 files\n"
    assert len(pycs(tmp_path)) == 3


def test_bytes_depend_neither_on_the_cores_nor_on_the_hash_seed(tmp_path: Path) -> None:
    one, all_ = tmp_path / "one", tmp_path / "all"
    installed(one, "many", MODULES)
    shutil.copytree(one, all_)
    on_one_core = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]

    # A .pyc has the path of its source: both are compiled in the same folder.
    assert compiled(one, "many", prefix=on_one_core, PYTHONHASHSEED="7").returncode == 0
    first = pycs(one)
    shutil.rmtree(one)
    all_.rename(one)

    assert compiled(one, "many", PYTHONHASHSEED="8").returncode == 0
    assert pycs(one) == first
    assert len(first) == len(MODULES)


def test_invalid_python_file_is_named_and_skipped(tmp_path: Path) -> None:
    installed(tmp_path, "mixed", {"mixed/right.py": "", "mixed/template.py": "class {{ name }}:\n"})

    done = compiled(tmp_path, "mixed")

    assert (done.returncode, done.stdout) == (0, f"compile: 2 files, failed: {tmp_path}/mixed/template.py\n")
    assert len(pycs(tmp_path)) == 1


def test_missing_package_fails(tmp_path: Path) -> None:
    done = compiled(tmp_path, "no-such-thing")

    assert (done.returncode, done.stderr) == (1, "compile: no-such-thing is not installed\n")


def test_killed_process_fails(tmp_path: Path) -> None:
    installed(tmp_path, "big", {"big.py": ""})
    (tmp_path / "compileall.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")

    done = compiled(tmp_path, "big")

    assert (done.returncode, done.stderr) == (1, "compile: a compiling process exited with -9\n")
