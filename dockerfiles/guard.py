"""Guard of a build: no installation may replace a package that the base provides. Runs with the image's own Python.

``record``    before any installation: write the protected packages with version, location and files, and the lines of
              the lock that are left to install
``install``   install those, each file by its hash and without dependencies, since the lock has them all; list them in
              requirements.txt for compile.py. Only a line marked ``# sdist`` is built, with the tools of
              build-tools.txt, so no index decides which code a build runs
``verify``    at the end: fail if a protected package was changed, an installed version is not the pinned one, pip finds
              a conflict that the base did not have, or an import fails
``download``  for a bundle: download what ``install`` would install

Needs Python 3.8 and pip, nothing else, and pip_check.py and training_import.py in the same folder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import pip_check
import training_import
from pip_check import canonical, is_complaint, name_of, required_by

FOLDER = Path("/opt/verljob/guard")
BUILD_TOOLS = Path(__file__).with_name("build-tools.txt")
SDIST = "# sdist"  # how images/pins/locks.py marks a package that has no wheel


def distributions() -> dict[str, metadata.Distribution]:
    """Every distribution by its canonical name; of several, the first on sys.path."""
    found: dict[str, metadata.Distribution] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            found.setdefault(canonical(name), distribution)
    return found


def installed() -> dict[str, dict[str, str]]:
    """Version and folder of every distribution."""
    return {
        name: {"version": each.version, "location": str(Path(str(each.locate_file(""))).resolve())}
        for name, each in distributions().items()
    }


def hash_files(name: str) -> str:
    """Hash path, size and time of a distribution's files: another package may overwrite them silently."""
    files = [file for file in metadata.distribution(name).files or [] if file.suffix != ".pyc"]
    digest = hashlib.sha256()
    for path in sorted(str(file.locate()) for file in files):
        if os.path.exists(path):
            state = os.stat(path)
            digest.update(f"{path} {state.st_size} {state.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def conflicts() -> list[str]:
    """Return the complaints of `pip check`, which runs again only after a distribution was added, removed or moved."""
    state, cache = hashlib.sha256(json.dumps(installed(), sort_keys=True).encode()).hexdigest(), FOLDER / "checked.json"
    if cache.exists():
        last = json.loads(cache.read_text(encoding="utf-8"))
        if last["state"] == state:
            return list(last["conflicts"])
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):  # 1 with complaints
        sys.exit(f"guard: pip check exited with {done.returncode}: {done.stderr.strip() or 'no error message'}")
    complaints = [line for line in done.stdout.splitlines() if is_complaint(line)]
    _write("checked.json", [json.dumps({"state": state, "conflicts": complaints})])
    return complaints


def locked(*locks: Path) -> dict[str, str]:
    """Return the lines of locks by package: `name==version --hash=…`."""
    lines = [line for lock in locks for line in lock.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    return {name_of(line): line for line in lines}


def record(protect: list[str], lock: Path, wanted: list[str], has: list[str], own: list[str] | None = None) -> None:
    """Write protected.txt, requirements.txt and before.json into FOLDER.

    A conflict of the base's own packages is left as it is, but not one of a package that an earlier step of this build
    installed, its ``own``: for that the base's packages are changed.
    """
    current = installed()
    kept = {name: {**current[name], "files": hash_files(name)} for name in map(canonical, protect) if name in current}
    for name, version in (pin.split("==") for pin in has):
        present = current.get(canonical(name), {}).get("version", "none")
        if not present.startswith(version):
            say(f"WARNING: the catalog says that this base has {name} {version}, it has {present}")
    lines = locked(lock)
    requested = {name_of(line): line.split("==")[1] for line in wanted}
    if unlocked := sorted(set(requested) - set(lines)):
        sys.exit(f"guard: {', '.join(unlocked)} is required but not in the lock: `invoke image.lock` first")
    complaints = conflicts()
    old = [line for line in complaints if canonical(line.split()[0]) not in map(canonical, own or [])]
    moving = {required_by(line) for line in complaints if line not in old}
    # A package of the base stays as it is unless another version is requested: the less of a tested base changes, the
    # better. The lock decides about packages that the base does not have.
    missing = [
        line
        for name, line in lines.items()
        if name not in current or name in moving or (name in requested and current[name]["version"] != requested[name])
    ]
    held = [f"{name}=={facts['version']}" for name, facts in sorted(kept.items())]
    _write("protected.txt", held)  # for installations into the finished image
    _write("requirements.txt", [line for line in missing if name_of(line) not in kept])
    versions = {name: facts["version"] for name, facts in current.items()}
    before = {"protected": kept, "conflicts": old, "versions": versions}
    _write("before.json", [json.dumps(before, indent=1, sort_keys=True)])
    say(f"protected: {', '.join(held) or 'nothing'}; to install: {len(missing)} of {len(lines)} of the lock")


def install(*locks: Path, wanted: list[str] | None = None) -> None:
    """Install ``wanted``, else the recorded rest, then the packages that have to change for it, until none is left."""
    before = read_before()
    lines, left = locked(*locks), (FOLDER / "requirements.txt").read_text(encoding="utf-8").splitlines()
    if wanted:
        current = installed()
        left = [line for line in wanted if current.get(name_of(line), {}).get("version") != line.split("==")[1]]
        if unlocked := [line for line in left if name_of(line) not in lines]:
            sys.exit(f"guard: {', '.join(unlocked)} is not in the lock: `invoke image.lock` first")
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
        broken = {required_by(line) for line in pip_check.new(conflicts(), before["conflicts"])}
        left = [lines[name] for name in sorted(broken - set(moved) - set(before["protected"])) if name in lines]
        for line in left:
            say(f"the base's {name_of(line)} does not fit, {line.split()[0]} replaces it")
    _write("requirements.txt", list(moved.values()))


def build(sdists: list[str], folder: Path) -> list[str]:
    """Build a wheel of each into ``folder``; return the lines that install these wheels by their own hashes.

    With build isolation pip would fetch build requirements from the index, without a hash, and run them.
    """
    (folder / "sdists.txt").write_text("\n".join(sdists) + "\n", encoding="utf-8")
    with build_tools() as tools:
        flags = ["--no-build-isolation", "--use-pep517", "--no-cache-dir", "--wheel-dir", str(folder)]
        pip(["wheel", "--no-deps", "--require-hashes", *flags, "-r", str(folder / "sdists.txt")], tools)
    hashes = {
        canonical(wheel.name.split("-")[0]): hashlib.sha256(wheel.read_bytes()).hexdigest()
        for wheel in folder.glob("*.whl")
    }
    return [f"{line.split()[0]} --hash=sha256:{hashes[name_of(line)]}" for line in sdists]


def download(folder: str, *locks: Path) -> None:
    """Download the files of locks, without dependencies, and the build tools for those that have no wheel."""
    flags = ["download", "--quiet", "--dest", folder, "--no-deps", "--require-hashes"]
    pip([*flags, "--only-binary", ":all:", "-r", str(BUILD_TOOLS)])
    # Even a download asks a source distribution for its metadata, and that runs its build.
    with build_tools() as tools:
        files = [argument for lock in locks for argument in ("-r", str(lock))]
        pip([*flags, "--no-build-isolation", "--use-pep517", *files], tools)


@contextmanager
def build_tools() -> Iterator[dict[str, str]]:
    """Install the tools of build-tools.txt into a temporary folder; yield the variables for a pip that uses them."""
    with tempfile.TemporaryDirectory() as tools:
        hashed = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(BUILD_TOOLS)]
        pip(["install", "--quiet", "--no-compile", "--target", tools, *hashed])
        yield {"PYTHONPATH": os.pathsep.join(filter(None, [tools, os.environ.get("PYTHONPATH", "")]))}


def pip(arguments: list[str], variables: dict[str, str] | None = None) -> None:
    """Run the image's pip without the base's PIP_CONSTRAINT, whose lines would need hashes, too."""
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    environment.update(variables or {})
    done = subprocess.run([sys.executable, "-m", "pip", *arguments], env=environment, check=False)
    if done.returncode:
        sys.exit(f"guard: pip {' '.join(arguments)} exited with {done.returncode}")


def verify(
    pins: list[str], imports: list[str], tolerate: list[str], training: Sequence[str] = (), mode: str = ""
) -> None:
    """Fail with every difference from the expected image; report what is known and could not be proved.

    ``training`` has the modules that a training imports, ``mode`` the vllm_mode that verl has to choose.
    """
    before, current = read_before(), installed()
    wrong: list[str] = []
    for name, facts in before["protected"].items():
        now = current.get(name)
        if now != {key: facts[key] for key in ("version", "location")}:
            wrong.append(f"{name} was {facts['version']} in {facts['location']}, now it is {now}")
        elif hash_files(name) != facts["files"]:
            wrong.append(f"{name} {facts['version']}: another package overwrote its files")
    for name, version in (pin.split("==") for pin in pins):
        present = current.get(canonical(name), {}).get("version", "missing")
        # A pin without a local version matches any: torch 2.13.0 is 2.13.0+cpu.
        if version not in (present, present.split("+")[0]):
            wrong.append(f"{name} should be {version}, it is {present}")
    wrong += conflict_failures(before, tolerate)
    wrong += [failure for failure in map(import_failure, imports) if failure]
    wrong += [failure for module in training if (failure := import_failure(module, strict=False))]
    if mode and not training_import.stubbed("verl") and (found := training_import.vllm_mode()) != mode:
        wrong.append(f"verl's vllm_mode is {found or 'not known'}, not {mode}: check ROCM_PATH and vLLM's version")
    if wrong:
        sys.exit("guard: this image is not as expected:\n  " + "\n  ".join(wrong))
    say(f"{len(before['protected'])} protected packages unchanged, {len(pins)} pins correct, imports work")


def conflict_failures(before: Mapping[str, Any], tolerate: Sequence[str]) -> Iterator[str]:
    """Yield the conflicts that this build made and the catalog does not tolerate; warn of those of the base."""
    found, now = conflicts(), {name: facts["version"] for name, facts in installed().items()}
    new = pip_check.new(found, before["conflicts"])
    for line in found:
        if line not in new:
            say(f"WARNING: the base has this conflict without the build: {line}")
        elif not pip_check.tolerated(line, tolerate):
            yield pip_check.explain(line, before["versions"], now, before["protected"])


def import_failure(module: str, *, strict: bool = True) -> str:
    """Return the reason why a module cannot be imported, or an empty string.

    Unless ``strict``, an error that may come from the missing GPU is only reported.
    """
    if training_import.stubbed(module):
        say(f"NOT TRIED: import {module}: this base is a stand-in")
        return ""
    error = training_import.failure(module)
    if error is None:
        return ""
    if strict or not training_import.may_need_gpu(error):
        return training_import.sentence(module, error)
    say(f"NOT PROVED: {training_import.sentence(module, error)} (this machine has no GPU: run `doctor --deep` on one)")
    return ""


def read_before() -> Any:
    """Read the record of the base."""
    return json.loads((FOLDER / "before.json").read_text(encoding="utf-8"))


def say(line: str) -> None:
    print(f"guard: {line}", flush=True)  # noqa: T201  a build's log is its standard output


def _write(name: str, lines: list[str]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording, installing = verbs.add_parser("record"), verbs.add_parser("install")
    verifying, downloading = verbs.add_parser("verify"), verbs.add_parser("download")
    recording.add_argument("--lock", type=Path, required=True)
    installing.add_argument("--lock", type=Path, required=True, nargs="+")
    installing.add_argument("--wanted", type=str.split, default=[])
    downloading.add_argument("--lock", type=Path, required=True, nargs="+")
    downloading.add_argument("--folder", required=True)
    for name in ("protect", "wanted", "has", "own"):
        recording.add_argument(f"--{name}", type=str.split, default=[])
    for name in ("pins", "imports", "tolerate", "training"):
        verifying.add_argument(f"--{name}", type=str.split, default=[])
    verifying.add_argument("--rocm", action="store_true", help="report vLLM's sleep mode and verl's vllm_mode")
    verifying.add_argument("--vllm-mode", default="", help="the vllm_mode that verl has to choose")
    given = parser.parse_args()
    if given.verb == "record":
        record(given.protect, given.lock, given.wanted, given.has, given.own)
    elif given.verb == "install":
        install(*given.lock, wanted=given.wanted)
    elif given.verb == "download":
        download(given.folder, *given.lock)
    else:
        if given.rocm:
            for line in training_import.rocm_facts():
                say(line)
        verify(given.pins, given.imports, given.tolerate, given.training, given.vllm_mode)
        sys.stdout.flush()
        os._exit(0)  # Python would take a second to tear down the imported modules


if __name__ == "__main__":
    main()
