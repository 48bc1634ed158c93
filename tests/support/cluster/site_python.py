"""Makes the Python of a site without containers, from the packages of verl.cpu; run in it with the cluster's /home.

Copies the image's Python to /home/site/python, and makes an environment of it in /home/site/verl with Ray and verl.
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


def main(packages: Iterable[str], without_dependencies: Iterable[str]) -> None:
    """Make Python and environment, with ``packages``, their dependencies, and those ``without_dependencies``."""
    (SITE / "python" / "bin").mkdir(parents=True)
    shutil.copy2(PYTHON, SITE / "python" / "bin")
    shutil.copytree(LIBRARY, SITE / "python" / "lib" / LIBRARY.name, symlinks=True)
    environment = SITE / "verl"
    subprocess.run([SITE / "python" / "bin" / PYTHON.name, "-m", "venv", "--without-pip", environment], check=True)
    for package in [*resolve(packages).values(), *map(distribution, without_dependencies)]:
        install(package, environment)


def resolve(requirements: Iterable[str]) -> dict[str, Distribution]:
    """Return the image's distributions that meet the requirements, dependencies included.

    Dependencies that the image does not have are optional, and skipped.
    """
    from packaging.requirements import Requirement

    resolved: dict[str, Distribution] = {}
    seen: set[str] = set()
    queue = [Requirement(text) for text in requirements]
    while queue:
        requirement = queue.pop()
        try:
            installed = distribution(requirement.name)
        except ModuleNotFoundError:
            continue
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        resolved[requirement.name] = installed
        for dependency in map(Requirement, installed.requires or []):
            extras = requirement.extras or {""}
            if dependency.marker is None or any(dependency.marker.evaluate({"extra": extra}) for extra in extras):
                queue.append(dependency)
    return resolved


def install(package: Distribution, environment: Path) -> None:
    """Copy the files that pip installed of a distribution; scripts get the environment's interpreter."""
    prefix = Path(sys.prefix)
    for file in package.files or []:
        source = Path(str(file.locate())).resolve()
        if not source.exists() or prefix not in source.parents:
            continue
        target = environment / source.relative_to(prefix)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
        if target.parent.name == "bin":
            target.write_bytes(source.read_bytes().replace(f"#!{prefix}/".encode(), f"#!{environment}/".encode(), 1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="+")
    parser.add_argument("--without-dependencies", nargs="*", default=[])
    main(**vars(parser.parse_args()))
