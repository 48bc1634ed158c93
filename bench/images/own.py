"""CPU seconds of `invoke build` itself after a one-line edit of verl, with an engine that does no work.

    .venv/bin/python bench/images/own.py [--runs 5] [TREE...]

Docker and its daemon are stand-ins that answer at once, so only Python, Invoke, our modules and their child processes
are measured. CPU seconds vary less than wall time on a busy machine. Several trees (checkouts of this project, such as
one of an older commit) take turns. The last two figures are the seconds before the engine started and after it ended.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.images.index_server import serving

ROOT = Path(__file__).resolve().parents[2]
FILES = 420  # as many as verl's package of 0.9 has
LAYERS = {"Type": "layers", "Layers": ["sha256:" + "a" * 64]}
IMAGE = {"RepoTags": ["own:base"], "Size": 1, "RootFS": LAYERS, "Config": {"Labels": {}}}
IMAGES = {name: {**IMAGE, "Id": f"sha256:{name[-1] * 64}"} for name in ("own:base", "own:new")}
HISTORY = [{"CreatedBy": "COPY"}, {"CreatedBy": "FROM"}]
ANSWERS: dict[str, Any] = {
    "/version": {"Version": "20.10.24", "ApiVersion": "1.41", "Arch": "amd64"},
    "/_ping": "OK",
    "/info": {"DockerRootDir": "/var/lib/docker"},
}
CLIENT = """#!/bin/sh
case "$1" in
    buildx) exit 1 ;;
    version | --version) echo 20.10.24 ;;
    build) date +%s.%N > "$OWN_BENCH/begun"; echo "#5 [1/1] FROM base"; echo "#5 CACHED"; sleep 0.2
           date +%s.%N > "$OWN_BENCH/ended" ;;
esac
"""


class FakeDaemon(http.server.BaseHTTPRequestHandler):
    """Docker's API, as far as a build queries it: IMAGES by name or ID."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        path = unquote(re.sub(r"^/v[\d.]+", "", urlsplit(self.path).path))  # docker-py names a version of the API
        name, _, query = path.removeprefix("/images/").rpartition("/")
        image = next((image for tag, image in IMAGES.items() if name in (tag, image["Id"])), None)
        if path in ANSWERS:
            self.respond(200, ANSWERS[path])
        elif image is None:
            self.respond(404, {"message": f"No such image: {name}"})
        else:
            self.respond(200, HISTORY if query == "history" else image)

    def do_POST(self) -> None:
        """Accept a new tag."""
        self.respond(201, "")

    def respond(self, status: int, answer: object) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def lay_out(folder: Path) -> Path:
    """Write a checkout of verl and the docker client; return the first file of verl's package."""
    package = folder / "verl/verl"
    (package / "version").mkdir(parents=True)
    (package / "version/version").write_text("0.9.1\n")
    for number in range(FILES):
        (package / f"m{number % 30}").mkdir(exist_ok=True)
        (package / f"m{number % 30}/f{number}.py").write_text(f"x = {number}\n" * 700)
    client = folder / "docker"
    client.write_text(CLIENT)
    client.chmod(0o755)
    return package / "m0/f0.py"


def build_argv(tree: Path, verl: Path) -> list[str]:
    """Return the command that builds in a tree, as the tree's own ./run starts it."""
    python = [str(tree / "start.py")] if (tree / "start.py").exists() else ["-m", "invoke", "--search-root", str(tree)]
    flags = ["--platform=cpu", f"--verl={verl}", "--base=own:base", "--tag=own:new", "--progress=quiet"]
    return [sys.executable, *python, "build", *flags]


def measure(argv: list[str], tree: Path, folder: Path, docker_host: str) -> tuple[float, float, float]:
    """Run a build; return its CPU seconds, the seconds before the engine started and those after it ended."""
    settings = {"OWN_BENCH": str(folder), "VERLJOB_DOCKER": str(folder / "docker"), "DOCKER_HOST": docker_host}
    environment = {**os.environ, **settings}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else every command compiles its modules again
    begun = time.time()
    child = subprocess.Popen(argv, cwd=tree, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    ended = time.time()
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with {child.returncode}")
    before, after = (float((folder / name).read_text()) for name in ("begun", "ended"))
    return used.ru_utime + used.ru_stime, before - begun, ended - after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("trees", nargs="*", type=Path, default=[ROOT], metavar="TREE")
    options = parser.parse_args()
    runs: dict[Path, list[tuple[float, float, float]]] = {tree.resolve(): [] for tree in options.trees}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        edited = lay_out(folder)
        with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeDaemon)) as daemon:
            for number in range(options.runs + 1):
                for tree, times in runs.items():
                    edited.write_text(f"x = {time.time_ns()}\n")
                    argv = build_argv(tree, folder / "verl")
                    once = measure(argv, tree, folder, f"tcp://127.0.0.1:{daemon.server_port}")
                    if number:  # the first run fills caches
                        times.append(once)
    for tree, times in runs.items():
        cpu, before, after = zip(*times)
        median = f"{statistics.median(cpu):.2f} CPU seconds ({min(cpu):.2f} to {max(cpu):.2f})"
        print(f"{tree}: {median}, {statistics.median(before):.2f} s before and {statistics.median(after):.2f} s after")


if __name__ == "__main__":
    main()
