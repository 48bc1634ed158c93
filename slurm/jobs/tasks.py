"""Tasks `job.*`: check a job before it is submitted, explain it after it failed."""

from __future__ import annotations

import os
import sys
from datetime import date
from pathlib import Path

from invoke import Collection, Context, Exit, task

from slurm.jobs import check, doctor, explain, profile, profile_check, profile_flags, profile_report


def after_dashes() -> list[str]:
    """Return the arguments behind `--` as typed: Invoke would join them with blanks."""
    return sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []


@task(
    name="check",
    positional=["recipe"],
    help={
        "recipe": "a name of slurm/recipes/ or a .yaml file; overrides follow after --",
        "nodes": "as for sbatch, like the next four",
        "gpus_per_node": "of one node",
        "time": "the time limit, in a format of sbatch",
        "node_memory": "of one node, in GiB",
        "gpu_memory": "of one GPU, in GiB",
        "image": "an image of this machine (else VERLJOB_IMAGE, verl.PLATFORM:latest)",
        "print": "print the command of the training and exit",
    },
)
def check_configuration(
    _: Context,
    recipe: str,
    *,
    nodes: int = 2,
    gpus_per_node: int = 8,
    time: str = "",
    node_memory: float = 0.0,
    gpu_memory: float = 0.0,
    image: str = "",
    print: bool = False,
) -> None:
    """Check a training's configuration before it is submitted: check RECIPE -- trainer.total_epochs=3"""
    limit = check.minutes(time)
    memory = (gpu_memory, node_memory)
    job = check.Job(recipe, after_dashes(), nodes, gpus_per_node, image, *memory, limit, print)
    code = check.run(job, os.environ)
    raise Exit(code=code)


@task(
    name="doctor",
    help={
        "json": "output for machines",
        "show_env": "the variables that would be set for NCCL and Gloo on this machine, and why",
        "exclude_bad": "a job or its run directory: print sbatch's flag that excludes its bad nodes",
    },
)
def check_machine(_: Context, json: bool = False, show_env: bool = False, exclude_bad: str = "") -> None:
    """Check this machine; an allocation by `sbatch slurm/launch.sh doctor`. 69: not fit."""
    if exclude_bad:
        print(doctor.exclusion(exclude_bad), flush=True)
        return
    code = doctor.check_host([flag for flag, on in (("--json", json), ("--show-env", show_env)) if on])
    raise Exit(code=code)


@task(
    name="explain",
    positional=["job"],
    help={
        "job": "a job's number, a log or a folder",
        "json": "one JSON object",
        "failed": "the job failed, even if its log shows no failure (for a number Slurm is queried)",
    },
)
def explain_job(_: Context, job: str, json: bool = False, failed: bool = False) -> None:
    """Find the first failure of a job in its logs: its class, file and line, and the fix."""
    print(explain.explain(job, folder=Path.cwd(), as_json=json, failed=failed), flush=True)


@task(
    name="profile",
    positional=["name"],
    help={
        "name": "of slurm/profiles/; your own file by a path with / or ./; here: VERLJOB_PROFILE, or this machine's",
        "check": "list what sbatch would refuse, and exit with 64 if anything; flags of sbatch follow after --",
    },
)
def show_profile(_: Context, name: str, check: bool = False) -> None:
    """Show what a site's profile passes to sbatch and a job, and why: profile lumi --check -- --nodes=4 --time=1-0"""
    site, why = profile.choose(name, os.environ)
    request = profile_flags.Request(after_dashes(), os.environ)
    print(profile_report.text(site, why, request, date.today()), flush=True)
    if not check:
        return
    found = profile_check.findings(site, request, date.today())
    print("\n".join(["", *(found or ["the profile knows nothing that sbatch would refuse"])]), flush=True)
    if found:
        raise Exit(code=64)


namespace = Collection(check_configuration, check_machine, explain_job)
