"""Builds TARGETS renamed copies of verl.cpu, in a process of bench/images/builds.py; unchanged ones are skipped.

Imports the same modules as `./run build --all`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import tasks
from images.builds.site import Site
from images.catalog.catalog import Catalog

TARGETS = 20
NAMES = [f"bench-{number}" for number in range(TARGETS)]


def main(base_reference: str) -> None:
    catalog = Catalog.read()
    cpu = catalog.find("cpu")
    variants = [replace(cpu, name=name, base=base_reference, base_made="") for name in NAMES]
    outcomes = tasks.build_all.build_all(variants, Site.read(), catalog, progress="quiet")
    tasks.echo(tasks.build_all.summary(outcomes))


if __name__ == "__main__":
    main(sys.argv[1])
