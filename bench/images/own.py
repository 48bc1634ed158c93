"""CPU seconds of `invoke build` itself after a one-line edit of verl, with an engine that does no work.

    .venv/bin/python bench/images/own.py [--runs 5] [TREE...]

Docker and its daemon are stand-ins that answer at once, so what is counted is Python, Invoke and our modules alone,
with what they start. CPU seconds suffer less from a busy machine than seconds do; several trees (checkouts of this
project, such as one of an older commit) take turns. The last are the seconds before the engine was started and after it
had ended.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.images.fake_daemon import OnSocket
from tests.support.images.serving import serving

ROOT = Path(__file__).resolve().parents[2]
FILES = 420  # as many as verl's package of 0.9 has
LAYERS = {"Type": "layers", "Layers": ["sha256:" + "a" * 64]}
BASE = {"Id": "sha256:" + "1" * 64, "RepoTags": ["own:base"], "Size": 1, "RootFS": LAYERS, "Config": {"Labels": {}}}
CLIENT = """#!/bin/sh
case "$1" in
    buildx) exit 1 ;;
    version | --version) echo 20.10.24 ;;
    build) date +%s.%N > "$OWN_BENCH/begun"; echo "#5 [1/1] FROM base"; echo "#5 CACHED"; sleep 0.2
           date +%s.%N > "$OWN_BENCH/ended" ;;
esac
"""


def lay_out(folder: Path) -> Path:
    """A checkout of verl and a docker client; the package's first file."""
    package = folder / "verl/verl"
    (package / "version").mkdir(parents=True)
    (package / "version/version").write_text("0.9.1\n")
    for number in range(FILES):
        (package / f"m{number % 30}").mkdir(exist_ok=True)
        (package / f"m{number % 30}/f{number}.py").write_text(f"x = {number}\n" * 700)
    client = folder / "docker"
    client.write_text(CLIENT)
    client.chmod(0o755)
    return package / "m0/f0.py"


def started(tree: Path, verl: Path) -> list[str]:
    """The command of a tree, as its own ./run starts it."""
    ours = [str(tree / "start.py")] if (tree / "start.py").exists() else ["-m", "invoke", "--search-root", str(tree)]
    flags = ["--platform=cpu", f"--verl={verl}", "--base=own:base", "--tag=own:new", "--progress=quiet"]
    return [sys.executable, *ours, "build", *flags]


def measured(argv: list[str], tree: Path, folder: Path) -> tuple[float, float, float]:
    """CPU seconds, seconds before the engine, seconds after it."""
    told = {"OWN_BENCH": str(folder), "VERLJOB_DOCKER": str(folder / "docker")}
    environment = {**os.environ, **told, "DOCKER_HOST": f"unix://{folder}/socket"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # a command is not compiled anew each time
    begun = time.time()
    child = subprocess.Popen(argv, cwd=tree, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    ended = time.time()
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with {child.returncode}")
    before, after = (float((folder / name).read_text()) for name in ("begun", "ended"))
    return used.ru_utime + used.ru_stime, before - begun, ended - after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("trees", nargs="*", type=Path, default=[ROOT], metavar="TREE")
    given = parser.parse_args()
    found: dict[Path, list[tuple[float, float, float]]] = {tree.resolve(): [] for tree in given.trees}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        edited = lay_out(folder)
        images = {name: {**BASE, "Id": f"sha256:{name[-1] * 64}"} for name in ("own:base", "own:new")}
        with serving(OnSocket(f"{folder}/socket", {**images, **{str(each["Id"]): each for each in images.values()}})):
            for number in range(given.runs + 1):
                for tree in found:
                    edited.write_text(f"x = {time.time_ns()}\n")
                    once = measured(started(tree, folder / "verl"), tree, folder)
                    found[tree] += [once] if number else []  # the first fills caches
    for tree, times in found.items():
        cpu, before, after = zip(*times)
        middle = f"{statistics.median(cpu):.2f} CPU seconds ({min(cpu):.2f} to {max(cpu):.2f})"
        print(f"{tree}: {middle}, {statistics.median(before):.2f} s before and {statistics.median(after):.2f} s after")


if __name__ == "__main__":
    main()
