"""Time to find the first failure in a gigabyte of logs, against `wc -l` of the same warm file.

    .venv/bin/python bench/node/explain.py [--gigabytes 1] [--rounds 3]

The file repeats the logs of jobs that succeeded (tests/data/logs/clean) with other numbers, and ends with a failure.
Prints the ratios of the best times and CPU times, and the peak memory of all processes of explain together; then how
many logs of failures in tests/data/logs it classifies right, and how many logs of successes it calls failures.
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
LOGS = ROOT / "tests" / "data" / "logs"
CLEAN = LOGS / "clean"
END = b"SIGTERM"  # a log with the end of its job cannot be followed by another
FAILURE = b"ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`\n"


def write(path: Path, size: int) -> None:
    """Write the file; numbers differ from copy to copy, as in a real log."""
    logs = [log.read_bytes() for log in sorted(CLEAN.glob("*.log"))]
    text = b"".join(log for log in logs if END not in log)
    draw = random.Random(1)  # noqa: S311  no secret
    copies = [re.sub(rb"\d", lambda _: b"%d" % draw.randrange(10), text) for _ in range(16)]
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(draw.choice(copies))
        file.write(b"Traceback (most recent call last):\n" + FAILURE)


def timed(argv: list[str]) -> tuple[float, float, str]:
    """Run a command; return its seconds, its CPU seconds and its output."""
    began, before = time.monotonic(), os.times()
    done = subprocess.run(
        argv, env={**os.environ, "PYTHONPATH": str(ROOT / "entrypoints")}, capture_output=True, check=True
    )
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - began, cpu_s, done.stdout.decode()


class Memory(threading.Thread):
    """Samples the memory of all processes of explain every 10 ms, and keeps the maximum."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak_mb = 0.0
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.wait(0.01):
            self.peak_mb = max(self.peak_mb, sum(map(_proportional_mb, _explain_processes())))


def _explain_processes() -> list[Path]:
    folders = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"verl_node.explain" in (folder / "cmdline").read_bytes():
                folders.append(folder)
        except OSError:  # ended meanwhile
            continue
    return folders


def _proportional_mb(folder: Path) -> float:
    """Return the proportional set size: shared pages count once over all processes."""
    try:
        match = re.search(r"^Pss: +(\d+) kB", (folder / "smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return 0.0
    return int(match[1]) / 1000 if match else 0.0


def explain_log(log: Path, *flags: str) -> dict[str, str]:
    """Run explain on a log in this process, and return its JSON."""
    from verl_node.explain import explain

    return dict(json.loads(explain([log], failed="--failed" in flags).json()))


def print_accuracy() -> None:
    """Print the right classes and first lines of each set of logs, and the successes that are called failures."""
    for name in ("untouched", "held_out", "taught"):
        cases = yaml.safe_load((LOGS / f"{name}.yaml").read_text())
        for flags in ([], ["--failed"]):
            found = [(case, explain_log(LOGS / name / case["file"], *flags)) for case in cases]
            classes = sum(result["class"] == case["class"] for case, result in found)
            lines = sum(
                bool(result["line"]) and result["line"] in _first_line(LOGS / name / case["file"], case)
                for case, result in found
            )
            print(
                " ".join([name, *flags]) + f": {classes} of {len(cases)} classes, {lines} of {len(cases)} first lines"
            )
    logs = [log for folder in ("clean", "noisy") for log in (LOGS / folder).glob("*.log")]
    wrong = sum(explain_log(log)["class"] != "none" for log in logs)
    print(f"{wrong} of {len(logs)} logs of successes are called failures")


def _first_line(log: Path, case: dict[str, str]) -> str:
    return next(line for line in log.read_text(errors="replace").splitlines() if case["line"] in line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None, help="folder for the file")
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
            *took, output = timed([sys.executable, "-m", "verl_node.explain", str(log)])
            if "vllm: " not in output:
                sys.exit(f"the failure was not found: {output}")
            explained.append(tuple(took))
        memory.stop.set()
        size = log.stat().st_size / 1e9
    for name, column in (("seconds", 0), ("CPU seconds", 1)):
        wc, explain = min(row[column] for row in counted), min(row[column] for row in explained)
        print(f"{size:.2f} GB, {name}: wc -l {wc:.2f}, explain {explain:.2f}, {explain / wc:.1f} times")
    print(f"{memory.peak_mb:.0f} MB at most")
    sys.path.insert(0, str(ROOT / "entrypoints"))
    print_accuracy()


if __name__ == "__main__":
    main()
