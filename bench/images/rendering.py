"""Time to render every Dockerfile of the catalog: in process, as a command, and against hpccm.

    .venv/bin/python bench/images/rendering.py

hpccm (`pip install hpccm`) renders one recipe in a process, for a similar image: base, packages of the distribution and
of Python, environment and labels.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
sys.path.insert(0, str(CHECKOUT))

from images.catalog.catalog import Catalog  # noqa: E402
from images.context import render  # noqa: E402

RECIPE = """
Stage0 += baseimage(image='docker.io/library/debian:bookworm-slim', _distro='ubuntu22')
Stage0 += packages(apt=['ca-certificates', 'python3', 'python3-venv', 'tini'])
Stage0 += pip(packages=['verl==0.9.1', 'ray[default]==2.60.0', 'transformers==5.10.4'], pip='pip3')
Stage0 += environment(variables={'RAY_USAGE_STATS_ENABLED': '0', 'RAY_ENABLE_UV_RUN_RUNTIME_ENV': '0'})
Stage0 += label(metadata={'org.opencontainers.image.title': 'verl.cpu', 'verljob.variant': 'cpu'})
Stage0 += copy(src='toolkit/', dest='/opt/verljob/')
"""


def time_in_process() -> float:
    """Return the seconds for every Dockerfile's text from the catalog, with compiled templates."""
    catalog = Catalog.read()
    render.dockerfile(catalog.find("rocm"))
    started = time.perf_counter()
    for variant in catalog.variants.values():
        render.dockerfile(variant)
    return time.perf_counter() - started


def time_from_files() -> float:
    """Return the seconds for the same, reading the catalog and compiling the templates included."""
    render._environment.cache_clear()
    started = time.perf_counter()
    for variant in Catalog.read().variants.values():
        render.dockerfile(variant)
    return time.perf_counter() - started


def time_command(*argv: str) -> float:
    started = time.perf_counter()
    subprocess.run(argv, cwd=CHECKOUT, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    hpccm = shutil.which("hpccm", path=str(Path(sys.executable).parent))
    if not hpccm:
        sys.exit("hpccm is missing: pip install hpccm")
    variants = len(Catalog.read().variants)
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "recipe.py"
        recipe.write_text(RECIPE, encoding="utf-8")
        sides: dict[str, Callable[[], float]] = {
            "in process": time_in_process,
            "in process, with catalog and templates": time_from_files,
            "invoke render": lambda: time_command(sys.executable, "-m", "invoke", "render"),
            "hpccm, one recipe": lambda: time_command(hpccm, "--recipe", str(recipe), "--format", "docker"),
        }
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(runs):
            for name, side in sides.items():
                seconds[name].append(side())
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name, values in seconds.items():
        print(f"{name}: {medians[name] * 1000:.0f} ms ({min(values) * 1000:.0f} to {max(values) * 1000:.0f})")
    print(f"{variants} variants: {medians['in process'] * 1000 / variants:.2f} ms a variant")
    print(
        f"hpccm x {variants} / invoke render: {medians['hpccm, one recipe'] * variants / medians['invoke render']:.1f}"
    )


if __name__ == "__main__":
    main()
