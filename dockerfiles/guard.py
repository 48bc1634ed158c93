"""Runs inside a build, with the image's own Python: nothing that the base brought may be replaced.

``record``   before anything is installed: writes the versions and places of the protected packages, and pip constraints
             that hold them there
``verify``   after everything: fails the build when one of them changed all the same, when a pin is not what is
             installed, when pip finds a conflict that the base did not have, or when an import fails
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

FOLDER = Path("/opt/verljob")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> dict[str, dict[str, str]]:
    """Version and folder of every distribution, by canonical name; the first on sys.path is the one that counts."""
    found: dict[str, dict[str, str]] = {}
    for each in metadata.distributions():
        name = each.metadata["Name"]
        if name:
            place = str(Path(str(each.locate_file(""))).resolve())
            found.setdefault(canonical(name), {"version": each.version, "location": place})
    return found


def conflicts() -> list[str]:
    """What `pip check` complains about."""
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if line and not line.startswith("No broken")]


def record(protected: list[str], lock: Path) -> None:
    here = installed()
    kept = {name: here[name] for name in protected if name in here}
    pinned = [f"{name}=={facts['version']}" for name, facts in sorted(kept.items())]
    for line in lock.read_text(encoding="utf-8").splitlines():
        name = canonical(re.split(r"[=\[ ;]", line, maxsplit=1)[0])
        # A package that the base has and verl can work with stays at the base's version: the less of a tested
        # base moves, the better.
        if line and not line.startswith("#") and name not in here:
            pinned.append(line)
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "constraints.txt").write_text("\n".join(pinned) + "\n", encoding="utf-8")
    facts = {"protected": kept, "conflicts": conflicts()}
    (FOLDER / "guard.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"guard: {len(kept)} packages of the base are protected: {', '.join(sorted(kept)) or 'none'}")


def verify(pins: list[str], imports: list[str]) -> None:
    before = json.loads((FOLDER / "guard.json").read_text(encoding="utf-8"))
    here = installed()
    wrong = []
    for name, facts in before["protected"].items():
        if here.get(name) != facts:
            wrong.append(f"{name} of the base was {facts['version']} in {facts['location']}, now {here.get(name)}")
    for pin in pins:
        name, version = pin.split("==")
        seen = here.get(canonical(name), {}).get("version", "missing")
        # A pin without a local version accepts any: torch 2.13.0 is 2.13.0+cpu.
        if version not in (seen, seen.split("+")[0]):
            wrong.append(f"{name} is pinned to {version}, installed is {seen}")
    wrong += [f"new conflict: {line}" for line in conflicts() if line not in before["conflicts"]]
    for module in imports:
        try:
            importlib.import_module(module)
        except Exception as failure:  # whatever an import raises is the answer
            wrong.append(f"import {module}: {type(failure).__name__}: {failure}")
    if wrong:
        sys.exit("guard: this image is not what it should be:\n  " + "\n  ".join(wrong))
    print(f"guard: {len(before['protected'])} protected packages untouched, {len(pins)} pins right, imports work")


def main() -> None:
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record")
    recording.add_argument("--protect", default="")
    recording.add_argument("--lock", type=Path, required=True)
    verifying = verbs.add_parser("verify")
    verifying.add_argument("--pins", default="")
    verifying.add_argument("--imports", default="")
    given = parser.parse_args()
    if given.verb == "record":
        record(given.protect.split(), given.lock)
    else:
        verify(given.pins.split(), given.imports.split())


if __name__ == "__main__":
    main()
