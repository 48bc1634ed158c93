"""What bench/builds.py starts as a new process: TARGETS renamed copies of verl.cpu, built where they are not unchanged.

It loads what `./run build --all` loads.
"""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import start  # noqa: F401  Invoke as ./run loads it
import tasks
from images.catalog import Catalog
from images.site import Site

TARGETS = 20
NAMES = [f"bench-{number}" for number in range(TARGETS)]


def main(base_reference: str) -> None:
    gc.enable()
    catalog = Catalog.here()
    cpu = catalog.find("cpu")
    specs = [replace(cpu, variant=name, base=base_reference, base_made="") for name in NAMES]
    outcomes = tasks.batch.build_all(specs, Site.here(), catalog, progress="quiet")
    tasks.say(tasks.schedule.summary(outcomes))


if __name__ == "__main__":
    main(sys.argv[1])
