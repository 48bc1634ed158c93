"""Compares two reproducible builds of a variant from different clones, users and days.

    .venv/bin/python bench/images/same_bytes.py [--variant NAME] [--folder DIR] [--sides one two compare]

Needs root, buildah and the docker daemon. Each side is `invoke build --variant NAME --reproducible`, which takes some
minutes and 4 GB for verl.cpu, 8 minutes and 30 GB for cu130-wheels. The second side has another folder, umask 077,
another user name and home, and files that are three days younger; its steps see the machine's clock, minutes later.
Prints the paths that differ.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from images.contents import diff, filesystem
from images.engine.client import choose
from images.engine.daemon import daemon

ROOT = Path(__file__).resolve().parents[2]
NAME = "verljob-bench-bytes"
MOST_PATHS = 50
LATER_S = 3 * 24 * 3600
# Folder, age of its files in the future, umask, and environment.
SIDES: dict[str, tuple[str, int, int, dict[str, str]]] = {
    "one": ("a", 0, 0o022, {}),
    "two": ("elsewhere/deeper", LATER_S, 0o077, {"USER": "other", "LOGNAME": "other"}),
}


def build(variant: str, side: str, folder: Path) -> None:
    """Clone this checkout or the first side's clone, build, and print the seconds."""
    subfolder, later_s, umask, variables = SIDES[side]
    checkout, home, first = folder / subfolder, folder / f"home-{side}", folder / SIDES["one"][0]
    home.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **variables, "HOME": str(home), "VERLJOB_DOCKER": choose().client}
    source = first if first.exists() else ROOT
    task = ["build", "--variant", variant, "--reproducible", "--tag", f"{NAME}:{side}", "--progress", "plain"]
    begun = time.monotonic()
    subprocess.run(["git", "clone", "--quiet", source, checkout], env=environment, umask=umask, check=True)
    for path in checkout.rglob("*"):
        os.utime(path, times=(time.time() + later_s,) * 2, follow_symlinks=False)
    subprocess.run([sys.executable, "-m", "invoke", *task], cwd=checkout, env=environment, umask=umask, check=True)
    print(f"{side}: {daemon().images.get(f'{NAME}:{side}').id}, {time.monotonic() - begun:.0f} s", flush=True)


def compare() -> int:
    """Return 0 if both images have one ID; else print the paths that differ, and return 1."""
    one, two = (daemon().images.get(f"{NAME}:{side}") for side in SIDES)
    if one.id == two.id:
        print(
            f"the same image: {one.id}, {len(one.attrs['RootFS']['Layers'])} layers, {one.attrs['Size'] / 1e9:.2f} GB"
        )
        return 0
    trees = [filesystem.read_image(image) for image in (one, two)]
    differing = [
        f"{change.what}: {change.before or 'missing'} | {change.after or 'missing'}"
        for change in diff.file_changes(*trees)
    ]
    print(f"two images: {one.id}, {two.id}; {len(differing)} of {len(trees[0])} paths differ")
    print("\n".join(differing[:MOST_PATHS]))
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variant", default="cpu", help="name in images/catalog.toml, by default cpu")
    parser.add_argument("--folder", type=Path, help="folder of the clones, by default a temporary one")
    parser.add_argument("--sides", nargs="+", choices=[*SIDES, "compare"], default=[*SIDES, "compare"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="same-bytes-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for side in options.sides:
            if side != "compare":
                build(options.variant, side, folder)
        return compare() if "compare" in options.sides else 0


if __name__ == "__main__":
    sys.exit(main())
