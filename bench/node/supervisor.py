"""Resources of a node's supervisor while a training runs: MB resident, percent of a core.

    .venv/bin/python bench/node/supervisor.py [--seconds 30]

A head and a worker as they are, with stand-ins for Ray and training, so that the supervisors alone are measured; on
a machine with many processes a look at /proc costs more than in a container of its own. Prints a line for each.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.node.supervised import Job

STARTED = "training has begun"


def supervisors(job: Job) -> dict[str, int]:
    """Process numbers by role; each runs below the `unshare` that was started for it."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text().split("\0")
            environ = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # ended meanwhile
            continue
        if words[1:3] == ["-m", "verl_node"] and f"HOME={job.folder}".encode() in environ:
            role = "head" if b"SLURM_NODEID=0" in environ else "worker"
            found[role] = int(folder.name)
    return found


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder), 2)
        try:
            job.start(FAKE_TRAINING=f"echo {STARTED}; sleep 600")
            job.until(0, STARTED)
            roles = supervisors(job)
            before = {role: cpu_s(pid) for role, pid in roles.items()}
            time.sleep(options.seconds)
            if any(process.poll() is not None for process in job.processes.values()):
                sys.exit(f"the job has ended:\n{job.output(0)}\n{job.output(1)}")
            for role, pid in sorted(roles.items()):
                percent = (cpu_s(pid) - before[role]) / options.seconds * 100
                print(f"{role}: {resident_mb(pid):.1f} MB resident, {percent:.2f} % of a core")
        finally:
            job.close()


if __name__ == "__main__":
    main()
