"""Folders of this checkout that tests read."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
ENTRYPOINTS = CHECKOUT / "entrypoints"
RECIPES = CHECKOUT / "slurm" / "recipes"

SUPPORT = CHECKOUT / "tests" / "support"
FAKES = SUPPORT / "shell" / "fakes"  # docker, podman, srun, scontrol …, for PATH
SUPERVISOR_FAKES = SUPPORT / "node" / "supervisor_fakes"

DATA = CHECKOUT / "tests" / "data"
LOGS = DATA / "logs"
FABRIC = DATA / "fabric"
RECORDED = DATA / "recorded"
