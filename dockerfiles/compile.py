"""Runs inside a build, after ``pip install --no-compile``: compiles what that installed, in several processes at once.

    python3 /steps/compile.py [--installed REQUIREMENTS] [NAME...]

pip compiles one file after the other, which is most of what an installation takes (docs/benchmarks.md, "A cold build").
What a .pyc holds depends on what its process had compiled before: marshal marks the objects that something else refers
to. So the files are dealt to as many processes on every machine, however many of them run at once.

Needs Python 3.8 and guard.py beside it.
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
SAME = {"PYTHONHASHSEED": "0"}  # before 3.11 marshal wrote a set in the order of its hashes


def sources(of: metadata.Distribution) -> set[str]:
    """The Python files of a distribution that are there."""
    found = {str(file.locate()) for file in of.files or [] if file.suffix == ".py"}
    if there := {path for path in found if os.path.exists(path)}:
        return there
    # What `setup.py install` put here names its files as they lay in its archive.
    tops = [Path(str(of.locate_file(top))) for top in (of.read_text("top_level.txt") or "").split()]
    return {str(path) for top in tops for path in (*top.rglob("*.py"), top.with_suffix(".py")) if path.exists()}


def compile_all(files: list[str]) -> None:
    """Compile each file beside itself, and name those that are no Python of this version: pip leaves them, too."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for code in pool.map(_compile, [files[number::SHARES] for number in range(min(SHARES, len(files)))]):
            if code not in (0, 1):
                sys.exit(f"compile: a process that compiled ended with {code}")
    left = [path for path in files if not os.path.exists(cache_from_source(path))]
    told = f", but {', '.join(left)}" if left else ""
    print(f"compile: {len(files)} files{told}", flush=True)  # noqa: T201  a build's log is its standard output


def _compile(share: list[str]) -> int:
    words = [sys.executable, "-m", "compileall", "-f", "-qq", "-i", "-"]
    environment = {**os.environ, **SAME}
    return subprocess.run(words, input="\n".join(share), env=environment, cwd="/", text=True, check=False).returncode


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--installed", type=Path, help="a file of requirements: what stands before each ==")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    lines = given.installed.read_text(encoding="utf-8").splitlines() if given.installed else []
    wanted, here = {name_of(line) for line in (*given.names, *lines) if line}, distributions()
    if missing := sorted(wanted - set(here)):
        sys.exit(f"compile: {', '.join(missing)} is not installed")
    compile_all(sorted({path for name in wanted for path in sources(here[name])}))


if __name__ == "__main__":
    main()
