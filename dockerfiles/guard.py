"""Runs inside a build, with the image's own Python: nothing that the base brought may be replaced.

``record``   before anything is installed: writes what is protected with its version, place and files, and what of the
             lock is left to install
``install``  installs that, each file by its hash and nothing for its dependencies: the lock has them all; what it
             installed is in requirements.txt then, and is compiled by compile.py. Nothing but a line marked ``# sdist``
             is built, and that with the tools of build-tools.txt alone: no index decides what code a build runs
``verify``   after everything: ends the build when a protected package changed all the same, when a pin is not what is
             installed, when pip finds a conflict that the base did not have, or when an import fails

Needs Python 3.8 and pip, nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

FOLDER = Path("/opt/verljob/guard")
COMPLAINT = r"\S+ \S+ (?:has requirement|requires) "
BUILD_TOOLS = Path(__file__).with_name("build-tools.txt")
SDIST = "# sdist"  # how images/pins/locks.py marks a package that has no wheel
# A stand-in base (tests/image/standins) lists here the modules that its stubs cannot carry.
STUBBED = Path("/opt/standin/cannot-import")


def canonical(name: str) -> str:
    """The name as PEP 503 writes it, by which two spellings are one package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(requirement: str) -> str:
    """The package of a requirement line."""
    return canonical(re.split(r"[=\[ ;<>!~]", requirement, maxsplit=1)[0])


def distributions() -> dict[str, metadata.Distribution]:
    """Every distribution by its canonical name; the first on sys.path is the one that counts."""
    found: dict[str, metadata.Distribution] = {}
    for each in metadata.distributions():
        name = each.metadata["Name"]
        if name:
            found.setdefault(canonical(name), each)
    return found


def installed() -> dict[str, dict[str, str]]:
    """Version and folder of every distribution."""
    return {
        name: {"version": each.version, "location": str(Path(str(each.locate_file(""))).resolve())}
        for name, each in distributions().items()
    }


def files_of(name: str) -> str:
    """A hash over path, size and time of a distribution's files: another package may overwrite them without a word."""
    files = [file for file in metadata.distribution(name).files or [] if file.suffix != ".pyc"]
    digest = hashlib.sha256()
    for path in sorted(str(file.locate()) for file in files):
        if os.path.exists(path):
            state = os.stat(path)
            digest.update(f"{path} {state.st_size} {state.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def conflicts() -> list[str]:
    """What `pip check` complains about; it is asked again where anything came, went or moved since."""
    state, known = hashlib.sha256(json.dumps(installed(), sort_keys=True).encode()).hexdigest(), FOLDER / "checked.json"
    if known.exists():
        last = json.loads(known.read_text(encoding="utf-8"))
        if last["state"] == state:
            return list(last["conflicts"])
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    said = [line for line in done.stdout.splitlines() if re.match(COMPLAINT, line)]
    _write("checked.json", [json.dumps({"state": state, "conflicts": said})])
    return said


def asked_by(conflict: str) -> str:
    """The package that a line of `pip check` has something against.

    `a 1.0 has requirement b>=2, but you have b 1.0.` and `a 1.0 requires b, which is not installed.`
    """
    return name_of(re.split(COMPLAINT, conflict)[-1].split(", ")[0])


def locked(*locks: Path) -> dict[str, str]:
    """The lines of locks by package: `name==version --hash=…`."""
    lines = [line for lock in locks for line in lock.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    return {name_of(line): line for line in lines}


def record(protect: list[str], lock: Path, wanted: list[str], has: list[str], own: list[str] | None = None) -> None:
    """Write protected.txt, requirements.txt and before.json into FOLDER.

    What lacks something in the base is left so, but not what an earlier step of this build installed, its ``own``: for
    that the base moves.
    """
    here = installed()
    kept = {name: {**here[name], "files": files_of(name)} for name in map(canonical, protect) if name in here}
    for name, version in (pin.split("==") for pin in has):
        seen = here.get(canonical(name), {}).get("version", "none")
        if not seen.startswith(version):
            say(f"WARNING: the catalog says that this base has {name} {version}, it has {seen}")
    lines = locked(lock)
    asked = {name_of(line): line.split("==")[1] for line in wanted}
    if strangers := sorted(set(asked) - set(lines)):
        sys.exit(f"guard: {', '.join(strangers)} is asked for and not in the lock: `invoke image.lock` first")
    known = conflicts()
    old = [line for line in known if canonical(line.split()[0]) not in map(canonical, own or [])]
    moving = {asked_by(line) for line in known if line not in old}
    # A package that the base has stays as it is unless it is asked for in another version: the less of a tested base
    # moves, the better. The lock decides what the base lacks.
    missing = [
        line
        for name, line in lines.items()
        if name not in here or name in moving or (name in asked and here[name]["version"] != asked[name])
    ]
    held = [f"{name}=={facts['version']}" for name, facts in sorted(kept.items())]
    _write("protected.txt", held)  # for installations into the finished image
    _write("requirements.txt", [line for line in missing if name_of(line) not in kept])
    _write("before.json", [json.dumps({"protected": kept, "conflicts": old}, indent=1, sort_keys=True)])
    say(f"protected: {', '.join(held) or 'nothing'}; to install: {len(missing)} of {len(lines)} of the lock")


def install(*locks: Path, wanted: list[str] | None = None) -> None:
    """Install ``wanted``, else what record left to install, then what else has to move for it, until nothing has."""
    before = json.loads((FOLDER / "before.json").read_text(encoding="utf-8"))
    lines, left = locked(*locks), (FOLDER / "requirements.txt").read_text(encoding="utf-8").splitlines()
    if wanted:
        here = installed()
        left = [line for line in wanted if here.get(name_of(line), {}).get("version") != line.split("==")[1]]
        if strangers := [line for line in left if name_of(line) not in lines]:
            sys.exit(f"guard: {', '.join(strangers)} is not in the lock: `invoke image.lock` first")
        left = [lines[name_of(line)] for line in left]
    moved: dict[str, str] = {}
    while left:
        with tempfile.TemporaryDirectory() as folder:
            sdists = [line for line in left if line.endswith(SDIST)]
            wheels = build(sdists, Path(folder)) if sdists else []
            _write("requirements.txt", [*(line for line in left if line not in sdists), *wheels])
            only = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--find-links", folder]
            pip(["install", "--no-compile", *only, "-r", str(FOLDER / "requirements.txt")])
        moved.update({name_of(line): line for line in left})
        wrong = {asked_by(line) for line in conflicts() if line not in before["conflicts"]}
        left = [lines[name] for name in sorted(wrong - set(moved) - set(before["protected"])) if name in lines]
        for line in left:
            say(f"the base's {name_of(line)} does not fit, {line.split()[0]} takes its place")
    _write("requirements.txt", list(moved.values()))


def build(sdists: list[str], folder: Path) -> list[str]:
    """Build a wheel of each into ``folder``; the lines that install these wheels by their own hashes.

    Isolated, pip would fetch each one's build requirements from the index, by no hash, and run them.
    """
    (folder / "sdists.txt").write_text("\n".join(sdists) + "\n", encoding="utf-8")
    with build_tools() as tools:
        here = ["--no-build-isolation", "--use-pep517", "--no-cache-dir", "--wheel-dir", str(folder)]
        pip(["wheel", "--no-deps", "--require-hashes", *here, "-r", str(folder / "sdists.txt")], tools)
    hashes = {
        canonical(wheel.name.split("-")[0]): hashlib.sha256(wheel.read_bytes()).hexdigest()
        for wheel in folder.glob("*.whl")
    }
    return [f"{line.split()[0]} --hash=sha256:{hashes[name_of(line)]}" for line in sdists]


@contextmanager
def build_tools() -> Iterator[dict[str, str]]:
    """The variables of a pip that builds with the tools of build-tools.txt."""
    with tempfile.TemporaryDirectory() as tools:
        hashed = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(BUILD_TOOLS)]
        pip(["install", "--quiet", "--no-compile", "--target", tools, *hashed])
        yield {"PYTHONPATH": os.pathsep.join(filter(None, [tools, os.environ.get("PYTHONPATH", "")]))}


def pip(words: list[str], variables: dict[str, str] | None = None) -> None:
    """Run the image's pip; a constraint of the base would have to have hashes, too."""
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    environment.update(variables or {})
    done = subprocess.run([sys.executable, "-m", "pip", *words], env=environment, check=False)
    if done.returncode:
        sys.exit(f"guard: pip {' '.join(words)} ended with {done.returncode}")


def verify(pins: list[str], imports: list[str], tolerate: list[str]) -> None:
    """End with every difference from what the image should be, if there is one."""
    before = json.loads((FOLDER / "before.json").read_text(encoding="utf-8"))
    here = installed()
    wrong = []
    for name, facts in before["protected"].items():
        now = here.get(name)
        if now != {key: facts[key] for key in ("version", "location")}:
            wrong.append(f"{name} was {facts['version']} in {facts['location']}, now it is {now}")
        elif files_of(name) != facts["files"]:
            wrong.append(f"{name} {facts['version']}: another package wrote over its files")
    for name, version in (pin.split("==") for pin in pins):
        seen = here.get(canonical(name), {}).get("version", "missing")
        # A pin without a local version means any: torch 2.13.0 is 2.13.0+cpu.
        if version not in (seen, seen.split("+")[0]):
            wrong.append(f"{name} should be {version}, it is {seen}")
    known = [re.compile(r"{} \S+ (has requirement|requires) {}\b".format(*pair.split(":"))) for pair in tolerate]
    new = [line for line in conflicts() if line not in before["conflicts"]]
    wrong += [f"pip check: {line}" for line in new if not any(each.match(line) for each in known)]
    wrong += [failure for failure in map(import_failure, imports) if failure]
    if wrong:
        sys.exit("guard: this image is not what it should be:\n  " + "\n  ".join(wrong))
    say(f"{len(before['protected'])} protected packages untouched, {len(pins)} pins right, imports work")


def import_failure(module: str) -> str:
    """Why a module cannot be imported, or nothing."""
    if STUBBED.exists() and module in STUBBED.read_text(encoding="utf-8").split():
        say(f"NOT TRIED: import {module}: this base is a stand-in")
        return ""
    try:
        importlib.import_module(module)
    except BaseException as failure:  # whatever an import raises is the answer, also SystemExit
        return f"import {module}: {type(failure).__name__}: {failure}"
    return ""


def say(line: str) -> None:
    print(f"guard: {line}", flush=True)  # noqa: T201  a build's log is its standard output


def _write(name: str, lines: list[str]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record")
    recording.add_argument("--lock", type=Path, required=True)
    installing = verbs.add_parser("install")
    installing.add_argument("--lock", type=Path, required=True, nargs="+")
    installing.add_argument("--wanted", type=str.split, default=[])
    verifying = verbs.add_parser("verify")
    for each in ("protect", "wanted", "has", "own"):
        recording.add_argument(f"--{each}", type=str.split, default=[])
    for each in ("pins", "imports", "tolerate"):
        verifying.add_argument(f"--{each}", type=str.split, default=[])
    given = parser.parse_args()
    if given.verb == "record":
        record(given.protect, given.lock, given.wanted, given.has, given.own)
    elif given.verb == "install":
        install(*given.lock, wanted=given.wanted)
    else:
        verify(given.pins, given.imports, given.tolerate)
        sys.stdout.flush()
        os._exit(0)  # Python would take a second to take apart what was imported


if __name__ == "__main__":
    main()
