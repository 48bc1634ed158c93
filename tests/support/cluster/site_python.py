"""Run in verl.cpu with the cluster's /home mounted: makes there what a site without containers has.

That is a Python on a shared file system, and an environment of it with Ray and verl; all of them are the image's.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

PYTHON = Path("/usr/bin/python3.11")
LIBRARY = Path("/usr/lib/python3.11")
SITE = Path("/home/site")


def main(wanted: Iterable[str], alone: Iterable[str]) -> None:
    """Make the two, the environment with the ``wanted`` packages, all that they need, and those ``alone``."""
    (SITE / "python" / "bin").mkdir(parents=True)
    shutil.copy2(PYTHON, SITE / "python" / "bin")
    shutil.copytree(LIBRARY, SITE / "python" / "lib" / LIBRARY.name, symlinks=True)
    environment = SITE / "verl"
    subprocess.run([SITE / "python" / "bin" / PYTHON.name, "-m", "venv", "--without-pip", environment], check=True)
    for found in [*needed(wanted).values(), *map(distribution, alone)]:
        install(found, environment)


def needed(wanted: Iterable[str]) -> dict[str, Distribution]:
    """The distributions that the requirements in ``wanted`` ask for; what is not in the image was not needed there."""
    from packaging.requirements import Requirement

    found: dict[str, Distribution] = {}
    asked: set[str] = set()
    waiting = [Requirement(text) for text in wanted]
    while waiting:
        requirement = waiting.pop()
        try:
            here = distribution(requirement.name)
        except ModuleNotFoundError:
            continue
        if str(requirement) in asked:
            continue
        asked.add(str(requirement))
        found[requirement.name] = here
        for more in map(Requirement, here.requires or []):
            extras = requirement.extras or {""}
            if more.marker is None or any(more.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(more)
    return found


def install(found: Distribution, environment: Path) -> None:
    """Copy what pip installed of a distribution; its scripts start the environment's own interpreter."""
    here = Path(sys.prefix)
    for file in found.files or []:
        source = Path(str(file.locate())).resolve()
        if not source.exists() or here not in source.parents:
            continue
        target = environment / source.relative_to(here)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
        if target.parent.name == "bin":
            target.write_bytes(source.read_bytes().replace(f"#!{here}/".encode(), f"#!{environment}/".encode(), 1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wanted", nargs="+")
    parser.add_argument("--alone", nargs="*", default=[])
    main(**vars(parser.parse_args()))
