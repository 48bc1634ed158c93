"""Paths of this checkout, including every file and folder below .build/."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENTRYPOINTS = ROOT / "entrypoints"
TEMPLATES = ROOT / "dockerfiles"
RENDERED = TEMPLATES / "rendered"
# Files of TEMPLATES that a Dockerfile runs.
STEPS = (
    "guard.py",
    "pip_check.py",
    "training_import.py",
    "build-tools.txt",
    "compile.py",
    "apt.sh",
    "amd_smi.py",
    "vllm_import.py",
)
BUILD_TOOLS = TEMPLATES / "build-tools.txt"
CATALOG = ROOT / "images" / "catalog.toml"

PINS = ROOT / "images" / "pins"
LOCKS = PINS / "locks"  # one lock file per variant, Python and machine
APT_PINS = PINS / "apt"
VERL_METADATA = PINS / "metadata"  # METADATA of verl's wheels, by release
VERL_PYTHON = VERL_METADATA / "python.json"  # code of verl's releases that a Python cannot run
TORCH_PINS = PINS / "wheels.txt"
BASE_DIGESTS = PINS / "bases.json"
BASES = PINS / "bases"  # descriptions of base images

BUILD = ROOT / ".build"
ATTESTATIONS = BUILD / "attestations"
BENCH = BUILD / "bench"
BUILDAH_STORE = BUILD / "buildah"
BUILT = BUILD / "built"  # IDs of built images, by the key of their inputs
DEMO = BUILD / "demo"
EXPORTS = BUILD / "export"
LAYER_SIZES = BUILD / "layers"
LOCK_FILES = BUILD / "locks"
PUSHED = BUILD / "pushed"
RELEASES = BUILD / "releases"  # text and table of each version
RECORDS = BUILD / "provenance"
REPORTS = BUILD / "reports"
STAGED = BUILD / "images"  # build contexts, by variant
VERL_COMMITS = BUILD / "verl"
