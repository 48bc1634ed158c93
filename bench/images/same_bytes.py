"""Compares two reproducible builds of verl.cpu: other clones, users, days.

    .venv/bin/python bench/images/same_bytes.py [--folder DIR] [--sides one two compare]

As root with buildah and the docker daemon: each side is `invoke build --platform cpu --reproducible`, some minutes and
4 GB. The second has another folder, umask 077, another account's name and home, and files that are three days younger;
the steps inside see the machine's own clock, minutes later. What is not the same is named by its path.
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
TOLD = 50
LATER_S = 3 * 24 * 3600
# A folder, how much younger its files are, the umask, and what the environment says.
SIDES: dict[str, tuple[str, int, int, dict[str, str]]] = {
    "one": ("a", 0, 0o022, {}),
    "two": ("elsewhere/deeper", LATER_S, 0o077, {"USER": "somebody", "LOGNAME": "somebody"}),
}


def build(side: str, folder: Path) -> None:
    """Clone this checkout's commit, or the first side's, build, and print how long that took."""
    place, later_s, umask, told = SIDES[side]
    checkout, home, first = folder / place, folder / f"home-{side}", folder / SIDES["one"][0]
    home.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **told, "HOME": str(home), "VERLJOB_DOCKER": choose().client}
    source = first if first.exists() else ROOT
    invoke = [sys.executable, "-m", "invoke", "build", "--platform", "cpu", "--reproducible", "--tag", f"{NAME}:{side}"]
    begun = time.monotonic()
    subprocess.run(["git", "clone", "--quiet", source, checkout], env=environment, umask=umask, check=True)
    for path in checkout.rglob("*"):
        os.utime(path, times=(time.time() + later_s,) * 2, follow_symlinks=False)
    subprocess.run([*invoke, "--progress", "plain"], cwd=checkout, env=environment, umask=umask, check=True)
    print(f"{side}: {daemon().images.get(f'{NAME}:{side}').id}, {time.monotonic() - begun:.0f} s", flush=True)


def compare() -> int:
    """0 where both have one ID, else 1, with the paths that differ."""
    one, two = (daemon().images.get(f"{NAME}:{side}") for side in SIDES)
    if one.id == two.id:
        print(
            f"the same image: {one.id}, {len(one.attrs['RootFS']['Layers'])} layers, {one.attrs['Size'] / 1e9:.2f} GB"
        )
        return 0
    trees = [filesystem.read_image(image) for image in (one, two)]
    found = [
        f"{each.what}: {each.before or 'missing'} | {each.after or 'missing'}" for each in diff.file_changes(*trees)
    ]
    print(f"two images: {one.id}, {two.id}; {len(found)} of {len(trees[0])} paths differ")
    print("\n".join(found[:TOLD]))
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the clones go; else a temporary one")
    parser.add_argument("--sides", nargs="+", choices=[*SIDES, "compare"], default=[*SIDES, "compare"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="same-bytes-") as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for side in given.sides:
            if side != "compare":
                build(side, folder)
        return compare() if "compare" in given.sides else 0


if __name__ == "__main__":
    sys.exit(main())
