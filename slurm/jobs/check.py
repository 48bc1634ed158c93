"""Checks a training configuration before sbatch, with the image's own verl and without a GPU."""

from __future__ import annotations

import netrc
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from slurm.errors import CannotCheck
from slurm.jobs import container

RECIPES = Path(__file__).parents[1] / "recipes"
PLATFORMS = ("rocm", "cuda", "cpu")
GIB = 1 << 30
TIMEOUT_S = 120
MODULE = "verl_node.configuration"
_WANDB_HOST = "api.wandb.ai"
_DAY_MINUTES = 24 * 60


@dataclass(frozen=True)
class Job:
    """The sbatch flags of a job that a configuration depends on; memory in GiB, 0 for unknown."""

    recipe: str
    overrides: Sequence[str]
    nodes: int
    gpus_per_node: int
    image: str
    gpu_memory_gib: float
    node_memory_gib: float
    minutes: int
    only_print: bool = False


def run(job: Job, environ: Mapping[str, str]) -> int:
    """Run the check in a container, or with VERLJOB_RUNTIME=bare in the environment; return 0 or 65."""
    recipe = find(job.recipe)
    image = job.image or image_of(recipe, environ)
    python = container.Python(image, recipe, environ)
    runtime = python.runtime
    argv = python.argv(["-m", MODULE, *_flags(job, recipe, environ), "--", *job.overrides])
    print(f"image {image}, {runtime}", file=sys.stderr if job.only_print else sys.stdout, flush=True)
    try:
        code = subprocess.run(argv, env=python.env(), check=False, timeout=TIMEOUT_S).returncode
    except (OSError, subprocess.TimeoutExpired) as failed:
        raise CannotCheck(f"{runtime} could not check {recipe.name} with {image}: {failed}.") from failed
    if code not in (0, 65):
        raise CannotCheck(
            f"{runtime} ended with {code} for {image}. It has to be an image of this toolkit that has `{MODULE}`: "
            f"./run build makes one, --image or VERLJOB_IMAGE names another."
        )
    return code


def find(recipe: str) -> Path:
    """Return a recipe's file: a name of slurm/recipes/, or a path that ends in .yaml, as launch.sh reads it."""
    path = Path(recipe).resolve() if recipe.endswith(".yaml") else RECIPES / f"{recipe}.yaml"
    if not path.is_file():
        names = ", ".join(sorted(file.stem for file in RECIPES.glob("*.yaml")))
        raise CannotCheck(f"There is no recipe {recipe}; recipes are {names}, or the path of a .yaml file.")
    return path


def image_of(recipe: Path, environ: Mapping[str, str]) -> str:
    """Return VERLJOB_IMAGE, else the latest image of the recipe's platform on this machine."""
    return environ.get("VERLJOB_IMAGE") or f"verl.{_platform(recipe, environ)}:latest"


def minutes(text: str) -> int:
    """Parse a time limit of sbatch (minutes, [days-]hours:minutes[:seconds]) into minutes; 0 for none."""
    match = re.fullmatch(r"(?:(?P<days>\d+)-)?(?P<parts>\d+(?::\d+){0,2})", text or "0")
    if match is None:
        raise CannotCheck(
            f"The time limit {text} is not in a format of sbatch: write minutes, hours:minutes:seconds or days-hours."
        )
    parts = [int(part) for part in match["parts"].split(":")]
    if match["days"] is not None:
        hours, rest = parts[0], (parts[1] if len(parts) > 1 else 0)
        return int(match["days"]) * _DAY_MINUTES + hours * 60 + rest
    return parts[0] * 60 + parts[1] if len(parts) == 3 else parts[0]


def _platform(recipe: Path, environ: Mapping[str, str]) -> str:
    """Return VERLJOB_PLATFORM, else the recipe's platform, else cpu."""
    if environ.get("VERLJOB_PLATFORM"):
        return environ["VERLJOB_PLATFORM"]
    try:
        content = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    except yaml.YAMLError as broken:
        raise CannotCheck(f"{recipe} is not valid YAML: {broken}. Compare it with slurm/recipes/.") from broken
    platform = content.get("platform") if isinstance(content, dict) else None
    return platform if platform in PLATFORMS else "cpu"


def _flags(job: Job, recipe: Path, environ: Mapping[str, str]) -> Iterator[str]:
    yield from ("--recipe", str(recipe), "--nodes", str(job.nodes), "--gpus-per-node", str(job.gpus_per_node))
    yield from ("--data-dir", str(container.data_folder(environ)))
    for flag, gib in (("--gpu-memory", job.gpu_memory_gib), ("--node-memory", job.node_memory_gib)):
        yield from (flag, str(int(gib * GIB))) if gib else ()
    yield from ("--model", environ["VERLJOB_MODEL"]) if environ.get("VERLJOB_MODEL") else ()
    yield from ["--print"] if job.only_print else []
    yield from ["--wandb"] if _logs_to_wandb(environ) else []
    yield from ["--long"] if not job.minutes or job.minutes > _DAY_MINUTES else []


def _logs_to_wandb(environ: Mapping[str, str]) -> bool:
    """Return the same as ``Settings.logs_to_wandb`` of verl_node on a node."""
    if environ.get("WANDB_API_KEY") or environ.get("WANDB_MODE") in ("offline", "dryrun", "disabled"):
        return True
    try:
        return netrc.netrc(environ.get("NETRC") or None).authenticators(_WANDB_HOST) is not None
    except (OSError, netrc.NetrcParseError):
        return False
