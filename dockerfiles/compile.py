"""Compiles in parallel what ``pip install --no-compile`` installed. Runs inside a build.

    python3 /steps/compile.py [--installed REQUIREMENTS] [NAME...]

pip compiles one file after the other, which is most of an installation's time (docs/benchmarks.md, "A cold build").
The content of a .pyc depends on what its process compiled before: marshal marks the objects that have other references.
So the files are dealt to the same number of processes on every machine, however many of them run at once.

Needs Python 3.8, and guard.py in the same folder.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from importlib.util import cache_from_source
from pathlib import Path

from guard import distributions, name_of

SHARES = 16
HASH_SEED = {"PYTHONHASHSEED": "0"}  # before 3.11 marshal wrote a set in the order of its hashes


def sources(distribution: metadata.Distribution) -> set[str]:
    """The existing Python files of a distribution."""
    files = {str(file.locate()) for file in distribution.files or [] if file.suffix == ".py"}
    if existing := {path for path in files if os.path.exists(path)}:
        return existing
    # `setup.py install` lists the paths of its archive, so the top-level modules are searched.
    tops = [Path(str(distribution.locate_file(top))) for top in (distribution.read_text("top_level.txt") or "").split()]
    return {str(path) for top in tops for path in (*top.rglob("*.py"), top.with_suffix(".py")) if path.exists()}


def compile_all(files: list[str]) -> None:
    """Compile each file beside itself, and name those that are no valid Python of this version, as pip does."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for code in pool.map(_compile, [files[number::SHARES] for number in range(min(SHARES, len(files)))]):
            if code not in (0, 1):
                sys.exit(f"compile: a compiling process exited with {code}")
    left = [path for path in files if not os.path.exists(cache_from_source(path))]
    failed = f", failed: {', '.join(left)}" if left else ""
    print(f"compile: {len(files)} files{failed}", flush=True)  # noqa: T201  a build's log is its standard output


def _compile(share: list[str]) -> int:
    argv = [sys.executable, "-m", "compileall", "-f", "-qq", "-i", "-"]
    environment = {**os.environ, **HASH_SEED}
    return subprocess.run(argv, input="\n".join(share), env=environment, cwd="/", text=True, check=False).returncode


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--installed", type=Path, help="a file of requirements, whose packages are compiled")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    lines = given.installed.read_text(encoding="utf-8").splitlines() if given.installed else []
    names, found = {name_of(line) for line in (*given.names, *lines) if line}, distributions()
    if missing := sorted(names - set(found)):
        sys.exit(f"compile: {', '.join(missing)} is not installed")
    compile_all(sorted({path for name in names for path in sources(found[name])}))


if __name__ == "__main__":
    main()
