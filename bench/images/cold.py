"""Cold build of verl.cpu against a plain Dockerfile of the same packages: real apt and pip, no network.

    .venv/bin/python bench/images/cold.py [--runs 3] [--only ours plain]

The packages of the lock are downloaded once to .build/bench/cold. Builds then use an index and a Debian mirror on this
machine, on another port each time, so that no cache of pip applies. Each build has a new base, so that no cached layer
applies. Ours is the rendered Dockerfile with its guard, its checks of pins and imports, the report and the record. The
plain one is the short way to the same packages: apt-get install, a venv, pip install of torch and of the lock, COPY.
Both have the base, the wheel of torch and the lock on this machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.images.index_server import IndexServer, bridge_address, package_name, serving
from images.builds import build, fetch
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.context import context
from images.engine import base_image
from images.engine.client import choose
from images.engine.daemon import daemon
from images.host.paths import BENCH, BUILD_TOOLS
from images.host.process import run
from images.pins import locks
from images.report.progress import Progress

FOLDER = BENCH / "cold"
NAME = "verljob-bench-cold"
CPU = Catalog.read().find("cpu")
# The plain build isolates builds from source: pip downloads the newest of these for them.
BUILDERS = ("setuptools", "wheel")
SECRETS = (
    "--mount=type=secret,id=ca --mount=type=secret,id=apt --mount=type=secret,id=sources --mount=type=secret,id=pip"
)
PIP = "PIP_CONFIG_FILE=/run/secrets/pip pip install --no-cache-dir"
PLAIN = f"""ARG BASE
FROM ${{BASE}}
RUN {SECRETS} export APT_CONFIG=/run/secrets/apt DEBIAN_FRONTEND=noninteractive \\
 && apt-get update && apt-get install --yes --no-install-recommends ca-certificates python3 python3-venv tini \\
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
RUN --mount=type=bind,source=wheelhouse,target=/wheelhouse \\
    pip install --no-cache-dir --no-index --no-deps --find-links /wheelhouse torch=={CPU.installs["torch"]}
RUN {SECRETS} --mount=type=bind,source=lock.txt,target=/lock.txt --mount=type=bind,source=verl.txt,target=/verl.txt \\
    {PIP} --no-deps --require-hashes -r /lock.txt -r /verl.txt
COPY toolkit/ /opt/verljob/
ENTRYPOINT ["/usr/bin/tini", "-g", "--", "/opt/verljob/entrypoint.sh"]
"""


def download(files: Path) -> None:
    """Download the packages of the lock with pip, and the build tools for source archives among them."""
    if files.exists():
        return
    if (running := ".".join(sys.version.split(".")[:2])) != CPU.python:
        raise SystemExit(f"the lock is for Python {CPU.python}, this is {running}: use Python {CPU.python}")
    new = files.with_name("new")
    shutil.rmtree(new, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(new)]
    subprocess.run([*pip, "--require-hashes", "-r", str(locks.path(CPU))], check=True)
    subprocess.run([*pip, *BUILDERS], check=True)
    subprocess.run([*pip, "--require-hashes", "-r", str(BUILD_TOOLS)], check=True)
    missing = set(locks.locked(CPU)) - {package_name(file.name) for file in new.iterdir()}
    if missing:
        raise SystemExit(f"pip downloaded no file for {', '.join(sorted(missing))} of the lock")
    new.rename(files)


def fresh_base() -> str:
    """Build a new base: the Debian of verl.cpu with a random file, so that no cached layer applies."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "nonce").write_bytes(os.urandom(8))
        Path(folder, "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nCOPY nonce /nonce\n", encoding="utf-8")
        flags = ["--quiet", "--tag", f"{NAME}:base", "--build-arg", f"BASE={base_image.ensure()}", folder]
        run(choose().build_argv(flags), choose().environment)
    return f"{NAME}:base"


def ours(reference: str, site: Site, _: Path) -> None:
    build.build(build.BuildRequest(CPU, [f"{NAME}:ours"], reference), site, progress=Progress())


def plain(reference: str, site: Site, private: Path) -> None:
    folder = FOLDER / "plain"
    flags = ["--quiet", "--tag", f"{NAME}:plain", "--build-arg", f"BASE={reference}", *site.secrets(CPU, private)]
    run(choose().build_argv([*flags, str(folder)]), choose().environment)


def lay_out(site: Site) -> None:
    """Write the context of the plain build: the wheel of torch, the lock and the toolkit, staged as for ours."""
    wheels = {f"wheelhouse/{wheel.name}": wheel for wheel in fetch.fetch_torch(CPU, site)}
    staged = context.stage(CPU, base_image.ensure(), wheels).folder
    shutil.rmtree(FOLDER / "plain", ignore_errors=True)
    shutil.copytree(staged, FOLDER / "plain")
    (FOLDER / "plain" / "Dockerfile").write_text(PLAIN, encoding="utf-8")


def time_build(make: Callable[[str, Site, Path], None]) -> float:
    """Return the seconds of a build on a new base, from an index on a new port."""
    reference = fresh_base()
    index = IndexServer(bridge_address(daemon()), FOLDER / "files", FOLDER / "debian")
    with serving(index) as server, tempfile.TemporaryDirectory() as private:
        site = Site(pip_index=f"http://{server.host}/simple", apt_mirror=f"http://{server.host}/debian")
        begun = time.monotonic()
        make(reference, site, Path(private))
        return time.monotonic() - begun


SIDES = {"ours": ours, "plain": plain}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=SIDES, default=list(SIDES))
    options = parser.parse_args()
    os.environ["VERLJOB_DOCKER"] = choose().client
    (FOLDER / "debian").mkdir(parents=True, exist_ok=True)
    download(FOLDER / "files")
    lay_out(Site.read())
    seconds: dict[str, list[float]] = {name: [] for name in options.only}
    for number in range(options.runs):
        for name in options.only[:: -1 if number % 2 else 1]:
            seconds[name].append(time_build(SIDES[name]))
            print(f"{name}: {seconds[name][-1]:.1f} s", flush=True)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    if len(medians) == len(SIDES):
        ratio = medians["ours"] / medians["plain"]
        print(f"medians: ours {medians['ours']:.1f} s, which is {ratio:.2f} of the plain one's")
    for image in daemon().images.list(NAME):
        for tag in image.tags:
            daemon().images.remove(tag)


if __name__ == "__main__":
    main()
