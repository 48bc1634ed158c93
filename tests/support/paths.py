"""Paths of this checkout that tests use."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
ENTRYPOINTS = CHECKOUT / "entrypoints"
RECIPES = CHECKOUT / "slurm" / "recipes"

SUPPORT = CHECKOUT / "tests" / "support"
FAKES = SUPPORT / "shell" / "fakes"  # for PATH: docker, podman, srun, scontrol …
SUPERVISOR_FAKES = SUPPORT / "node" / "supervisor_fakes"

DATA = CHECKOUT / "tests" / "data"
LOGS = DATA / "logs"
FABRIC = DATA / "fabric"
RECORDED = DATA / "recorded"
