"""Time to find the first failure in a gigabyte of logs, against `wc -l` of the same warm file.

    .venv/bin/python bench/node/explain.py [--gigabytes 1] [--rounds 3]

The file is what clean, noisy jobs wrote (tests/data/logs/clean), over and over with other numbers, and at its end a
failure. Prints the ratio of the best times and CPU times, and the most memory of all of explain's processes together;
then of how many kept logs of failures it is right, and how many logs of programs that ended well it calls failures.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests" / "data" / "logs"
CLEAN = KEPT / "clean"
END = b"SIGTERM"  # a log that has its job's end cannot be followed by another
FAILURE = b"ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`\n"


def write(path: Path, size: int) -> None:
    """Write the file; numbers differ from copy to copy, as they do in a log."""
    logs = [log.read_bytes() for log in sorted(CLEAN.glob("*.log"))]
    text = b"".join(log for log in logs if END not in log)
    draw = random.Random(1)  # noqa: S311  numbers to look at
    copies = [re.sub(rb"\d", lambda _: b"%d" % draw.randrange(10), text) for _ in range(16)]
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(draw.choice(copies))
        file.write(b"Traceback (most recent call last):\n" + FAILURE)


def timed(argv: list[str]) -> tuple[float, float, str]:
    """Run a command; return its seconds, its CPU seconds and what it said."""
    began, before = time.monotonic(), os.times()
    done = subprocess.run(
        argv, env={**os.environ, "PYTHONPATH": str(ROOT / "entrypoints")}, capture_output=True, check=True
    )
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - began, cpu_s, done.stdout.decode()


class Memory(threading.Thread):
    """The most that a process and its children hold, looked at every 10 ms."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most_mb = 0.0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.01):
            self.most_mb = max(self.most_mb, sum(map(_own_mb, _explainers())))


def _explainers() -> list[Path]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"verl_node.explain" in (folder / "cmdline").read_bytes():
                found.append(folder)
        except OSError:  # ended meanwhile
            continue
    return found


def _own_mb(folder: Path) -> float:
    """Proportional: what several processes share counts once."""
    try:
        told = re.search(r"^Pss: +(\d+) kB", (folder / "smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return 0.0
    return int(told[1]) / 1000 if told else 0.0


def explained(log: Path, *words: str) -> dict[str, str]:
    """Return what explain tells of a log, in this process."""
    from verl_node.explain import explain

    return dict(json.loads(explain([log], failed="--failed" in words).json()))


def print_right() -> None:
    """Print how many classes and first lines of each kept set are right, and how many good ends are called failures."""
    for name in ("untouched", "held_out", "taught"):
        cases = yaml.safe_load((KEPT / f"{name}.yaml").read_text())
        for words in ([], ["--failed"]):
            told = [(case, explained(KEPT / name / case["file"], *words)) for case in cases]
            classes = sum(one["class"] == case["class"] for case, one in told)
            lines = sum(
                bool(one["line"]) and one["line"] in _first(KEPT / name / case["file"], case) for case, one in told
            )
            print(
                " ".join([name, *words]) + f": {classes} of {len(cases)} classes, {lines} of {len(cases)} first lines"
            )
    logs = [log for folder in ("clean", "noisy") for log in (KEPT / folder).glob("*.log")]
    print(
        f"{sum(explained(log)['class'] != 'none' for log in logs)} of {len(logs)} logs of good ends are called failures"
    )


def _first(log: Path, case: dict[str, str]) -> str:
    return next(line for line in log.read_text(errors="replace").splitlines() if case["line"] in line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None, help="where the file is written")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        log = Path(folder) / "job.log"
        write(log, int(options.gigabytes * 1e9))
        memory = Memory()
        counted: list[tuple[float, ...]] = []
        explained: list[tuple[float, ...]] = []
        memory.start()
        for _ in range(options.rounds):
            counted.append(timed(["wc", "-l", str(log)])[:2])
            *took, told = timed([sys.executable, "-m", "verl_node.explain", str(log)])
            if "vllm: " not in told:
                sys.exit(f"the failure was not found: {told}")
            explained.append(tuple(took))
        memory.over.set()
        size = log.stat().st_size / 1e9
    for name, at in (("seconds", 0), ("CPU seconds", 1)):
        one, other = min(row[at] for row in counted), min(row[at] for row in explained)
        print(f"{size:.2f} GB, {name}: wc -l {one:.2f}, explain {other:.2f}, {other / one:.1f} times")
    print(f"{memory.most_mb:.0f} MB at most")
    sys.path.insert(0, str(ROOT / "entrypoints"))
    print_right()


if __name__ == "__main__":
    main()
