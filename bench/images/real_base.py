"""Builds CUDA variants on bases of real wheels, the nearest to their real bases that a package index alone can give.

    .venv/bin/python bench/images/real_base.py [--keep] VARIANT...

A base is Ubuntu with every package that images/pins/bases/ describes for the variant's real base, from the package
index: torch, the rollout engine and all that they need. Packages that no index has (apex, Transformer Engine …) or that
need hours to compile (flash-attn) are metadata alone, marked as such: `pip check` sees them, and no import works. The
index's build of a package may be for another CUDA than the real base's. The variant is built on it by the code of
`invoke build`, then what a training imports is imported, each module in a new container without a GPU; for SGLang, with
Ubuntu's libcuda.so.1, which NVIDIA's container toolkit mounts on a node with GPUs. Prints a row of the table in
docs/images.md for each variant. Needs docker, root for debootstrap, and about 15 GB of disk; the images are removed
after each variant, and with them all records of the build cache that were made meanwhile.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from images.builds import build, prune
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.engine import base_image
from images.engine.client import choose
from images.engine.daemon import daemon, get
from images.host.process import stream
from images.pins import base_packages, requirements

NAME = "verljob-real-base"
UBUNTU, MADE = "docker.io/library/ubuntu:24.04", "verljob-base:noble"
PYTHON = "3.12"  # of this Ubuntu
SITE_PACKAGES = f"usr/local/lib/python{PYTHON}/dist-packages"
METADATA_ALONE = "metadata alone, made by bench/images/real_base.py: this package cannot be imported"
DOCKERFILE = """ARG BASE
FROM ${BASE}
RUN --mount=type=secret,id=apt --mount=type=secret,id=ca \\
    export APT_CONFIG=/run/secrets/apt DEBIAN_FRONTEND=noninteractive && apt-get update \\
 && apt-get install --yes --no-install-recommends ca-certificates g++ libnuma1 python3-dev python3-pip \\
 && rm -rf /var/lib/apt/lists/*
ENV PIP_BREAK_SYSTEM_PACKAGES=1
RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \\
    --mount=type=bind,source=packages.txt,target=/packages.txt \\
    export PIP_CONFIG_FILE=/run/secrets/pip PIP_NO_CACHE_DIR=1 \\
 && python3 -m pip install --no-compile --no-deps --ignore-installed -r /packages.txt
COPY stubs/ /
"""
DRIVER = """ARG BASE
FROM ${BASE}
RUN --mount=type=secret,id=apt --mount=type=secret,id=ca \\
    export APT_CONFIG=/run/secrets/apt DEBIAN_FRONTEND=noninteractive \\
 && sed -i 's/ universe$/ universe restricted/' /etc/apt/sources.list && apt-get update \\
 && apt-get install --yes --no-install-recommends libnvidia-compute-580-server
"""
TRAINING = ["torch", "ray", "transformers", "verl", "verl.trainer.main_ppo"]
WORKERS = {"0.7.1": ["verl.workers.fsdp_workers"]}  # else ENGINE_WORKERS
ENGINE_WORKERS = ["verl.workers.engine_workers"]
ENGINES = {
    "vllm": [
        "vllm.entrypoints.llm",
        "vllm.entrypoints.openai.api_server",
        "verl.workers.rollout.vllm_rollout.vllm_rollout",
        "verl.workers.rollout.vllm_rollout.vllm_async_server",
    ],
    "sglang": [
        "sglang.srt.entrypoints.engine",
        "sglang.srt.entrypoints.http_server",
        "verl.workers.rollout.sglang_rollout.sglang_rollout",
        "verl.workers.rollout.sglang_rollout.async_sglang_server",
    ],
}


def modules(variant: Variant) -> list[str]:
    """Return what a training with this variant imports."""
    return [*TRAINING, *WORKERS.get(variant.installs["verl"], ENGINE_WORKERS), *ENGINES[variant.rollout]]


def make(variant: Variant, site: Site) -> str:
    """Build the base of a variant; return its reference."""
    described = base_packages.read()[variant.base]
    outside = requirements.outside_index()
    from_index, alone = [], dict[str, str]()
    for name, each in base_packages.packages(described).items():
        if f"{name}=={each.version}" in outside:
            alone[name] = each.version
        elif name != "pip":
            from_index.append(f"{name}=={each.version.partition('+')[0]}")
    reference, engine = f"{NAME}:{variant.name}", choose()
    base_image.ensure(UBUNTU, MADE)
    with tempfile.TemporaryDirectory(prefix="verljob-real-base-") as folder, tempfile.TemporaryDirectory() as private:
        context = Path(folder)
        (context / "Dockerfile").write_text(DOCKERFILE, encoding="utf-8")
        (context / "packages.txt").write_text("\n".join(from_index) + "\n", encoding="utf-8")
        for name, version in alone.items():
            write_metadata(context / "stubs" / SITE_PACKAGES, name, version)
        flags = ["--tag", reference, "--build-arg", f"BASE={MADE}", *site.secrets(variant, Path(private))]
        stream(engine.build_argv([*flags, str(context)]), engine.environment)
    print(
        f"{reference}: {len(from_index)} packages of the index, metadata alone: {', '.join(sorted(alone))}", flush=True
    )
    return reference


def write_metadata(folder: Path, name: str, version: str) -> None:
    """Write a dist-info folder without a package."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    required = [f"Requires-Dist: {line}" for line in requirements.distribution(name, version).requires or ()]
    head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", f"Summary: {METADATA_ALONE}"]
    (info / "METADATA").write_text("\n".join([*head, *required]) + "\n", encoding="utf-8")
    (info / "INSTALLER").write_text("real_base.py\n", encoding="utf-8")
    files = [f"{info.name}/{file},," for file in ("METADATA", "INSTALLER", "RECORD")]
    (info / "RECORD").write_text("\n".join(files) + "\n", encoding="utf-8")


def add_driver(image: str, variant: Variant, site: Site) -> str:
    """Build an image with the driver's libraries on top; return its reference."""
    engine, tag = choose(), f"{NAME}:driver-{variant.name}"
    with tempfile.TemporaryDirectory(prefix="verljob-driver-") as context, tempfile.TemporaryDirectory() as private:
        (Path(context) / "Dockerfile").write_text(DRIVER, encoding="utf-8")
        flags = ["--tag", tag, "--build-arg", f"BASE={image}", *site.secrets(variant, Path(private))]
        stream(engine.build_argv([*flags, context]), engine.environment)
    return tag


def import_failures(image: str, names: list[str]) -> dict[str, str]:
    """Import each module in a container; return the last line of those that fail."""
    failed = {}
    for name in names:
        argv = [choose().client, "run", "--rm", "--entrypoint", "python3", image, "-c", f"import {name}"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if re.match(r"\S*(Error|Exception)\b", line)]
            failed[name] = (lines or done.stderr.splitlines()[-1:] or [f"exit code {done.returncode}"])[-1]
    return failed


def measure(variant: Variant, site: Site) -> str:
    """Make the base, build and import; return the row of the table."""
    begun = time.monotonic()
    base = make(variant, site)
    made = time.monotonic()
    tag = f"{NAME}:built-{variant.name}"
    build.build(build.BuildRequest(variant, [tag], base=base), site)
    built = time.monotonic()
    names = modules(variant)
    failed = import_failures(add_driver(tag, variant, site) if variant.rollout == "sglang" else tag, names)
    sizes = [f"{get(each).attrs['Size'] / 1e9:.2f} GB" for each in (base, tag)]
    seconds = [f"{made - begun:.0f} s", f"{built - made:.0f} s"]
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    imports = f"{len(names) - len(failed)} of {len(names)}" + "".join(f"; {k}: {v}" for k, v in failed.items())
    return f"| `{variant.name}` | {day} | {sizes[0]}, {seconds[0]} | {sizes[1]}, {seconds[1]} | {imports} |"


def remove(variant: Variant, since: str) -> None:
    """Remove the images, and the records of the build cache made ``since`` (UTC, ISO 8601), which hold their layers."""
    for reference in (f"{NAME}:{prefix}{variant.name}" for prefix in ("driver-", "built-", "")):
        if base_image.present(reference):
            daemon().images.remove(reference, force=True)
    records = daemon().df().get("BuildCache") or []
    prune.remove_cache(str(each["ID"]) for each in records if each["CreatedAt"] >= since)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--keep", action="store_true", help="do not remove the images")
    given = parser.parse_args()
    catalog, site = Catalog.read(), Site.read("")
    variants = [catalog.find(variant=name) for name in given.variants]
    for variant in variants:
        described = base_packages.read().get(variant.base)
        if variant.platform != "cuda" or described is None or described.python != PYTHON:
            sys.exit(f"{variant.name} has no CUDA base with Python {PYTHON}: name a variant that has (docs/tags.md)")
    for variant in variants:
        began = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
        try:
            print(measure(variant, site), flush=True)
        finally:
            if not given.keep:
                remove(variant, began)


if __name__ == "__main__":
    main()
