"""`python3 -m verl_node.configuration`: look at a training's configuration, without a GPU and before Ray.

    python3 -m verl_node.configuration --recipe FILE --nodes 2 --gpus-per-node 8 [--print] [OVERRIDE…]
    python3 -m verl_node.configuration --save FILE -- python3 -m MODULE OVERRIDE…

The first is for people, the second for a job, whose head knows the whole command: it answers a line of JSON at once and
one with what verl itself says, and leaves for prepare what can only be seen with the model. 0, or 65 where something
is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from verl_node.configuration import check
from verl_node.configuration.check import Inspection
from verl_node.configuration.facts import Facts
from verl_node.configuration.finding import ERROR, NOTE, WARNING, Finding, error, errors, note
from verl_node.configuration.model import found as found_here
from verl_node.configuration.rules.enum_values import installed_engines
from verl_node.errors import BadTrainingConfig, InputUnavailable, NodeError
from verl_node.gpu import usage
from verl_node.inputs import hub
from verl_node.inputs.model import DEMO
from verl_node.reporting.masking import masked
from verl_node.settings.identity import installed
from verl_node.training import recipe, releases

_IDLE = 10  # a job forms its cluster meanwhile, and needs its CPUs for that


def main(arguments: Sequence[str] | None = None) -> int:
    """Look, say what was found, and return the exit code."""
    began = time.monotonic()
    options = _parse(arguments)
    facts = Facts(
        gpu_memory=options.gpu_memory or usage.memory_bytes(options.platform),
        node_memory=options.node_memory,
        wandb=options.wandb,
        engines=installed_engines(),
    )
    if options.print:
        return _print_command(options)
    if options.save:
        os.nice(_IDLE)
        seen = check.of_command(options.words, _choices(options.verl), facts)
        if seen.config is not None:
            check.save(options.save, seen.config, facts)
        findings = [*_told(seen.findings), *_told(seen.of_verl())]
    else:
        findings = _by_recipe(options, facts).findings
        print(_words(options, findings, time.monotonic() - began), flush=True)  # noqa: T201
    return BadTrainingConfig.code if any(errors(findings)) else 0


def _told(findings: list[Finding]) -> list[Finding]:
    print(json.dumps({"findings": [found.message() for found in findings]}), flush=True)  # noqa: T201
    return findings


def _training(options: argparse.Namespace) -> recipe.Training:
    """The training as a job would make it. Raises NodeError."""
    return recipe.training(
        recipe.load(options.recipe),
        options.words,
        verl_version=options.verl,
        nodes=options.nodes,
        gpus_per_node=options.gpus_per_node,
        run_dir=options.run_dir,
        data_dir=options.data_dir,
        model=options.model or None,
        wandb=options.wandb,
        long=options.long,
    )


def _print_command(options: argparse.Namespace) -> int:
    """Print the training's command with its variables, without anything that looks like a secret."""
    try:
        training = _training(options)
    except NodeError as refused:
        print(f"{refused.cause} {refused.fix}", file=sys.stderr)  # noqa: T201
        return refused.code
    words = ["env", *(f"{name}={value}" for name, value in training.env.items()), *training.argv]
    print(masked(shlex.join(words)), flush=True)  # noqa: T201
    return 0


def _by_recipe(options: argparse.Namespace, facts: Facts) -> Inspection:
    """Make the command as a job would, and look at all of it."""
    try:
        training = _training(options)
    except NodeError as refused:
        return Inspection([error("", refused.cause, refused.fix)])
    notes = [note("", text) for text in training.notes]
    with ThreadPoolExecutor() as pool:
        fetched = [pool.submit(_fetch, name) for name in training.models]
        seen = check.of_command(training.argv, _choices(options.verl), facts)
        seen.findings.extend(seen.of_verl())
        unseen = [found for one in fetched for found in one.result()]
    if seen.config is None or any(errors(seen.findings)):
        return Inspection([*notes, *seen.findings], seen.config)
    made = seen.config.get("actor_rollout_ref.model.path") if DEMO in training.models else None
    if made and not found_here(made):
        later = [note("", f"{DEMO} is made by the job: nothing was held against it.")]
    else:
        later = check.later(seen.config, facts)
    return Inspection([*notes, *seen.findings, *unseen, *later], seen.config)


def _fetch(name: str) -> list[Finding]:
    """Fetch what says how large a model is, where that is a hub's and not here; a hub out of reach takes 10 s."""
    if name.startswith("/") or name == DEMO or found_here(name):
        return []
    try:
        hub.configuration(name)
    except InputUnavailable as away:
        return [note("", away.cause)]
    return []


def _choices(verl: str) -> Mapping[str, Sequence[str]]:
    try:
        return releases.load(verl).choices
    except BadTrainingConfig:  # said where the recipe is translated
        return {}


def _words(options: argparse.Namespace, findings: Sequence[Finding], seconds: float) -> str:
    nodes, gpus = options.nodes, options.gpus_per_node
    lines = [f"{options.recipe.stem} with verl {options.verl} on {nodes} nodes with {gpus} GPUs each"]
    for severity in (ERROR, WARNING, NOTE):
        lines += [
            f"{severity:<8} {found.cause} {found.fix}".rstrip() for found in findings if found.severity == severity
        ]
    wrong = sum(found.severity == ERROR for found in findings)
    verdict = f"{wrong} error{'s' * (wrong != 1)}" if wrong else "nothing wrong was found"
    return "\n".join([*lines, f"{verdict}, after {seconds:.1f} s"])


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m verl_node.configuration", description=__doc__)
    parser.add_argument("--recipe", type=Path, help="a file of slurm/recipes/")
    parser.add_argument("--save", type=Path, help="be a job's: where to leave the configuration for prepare")
    parser.add_argument("--print", action="store_true", help="print the training's command and end")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--gpus-per-node", type=int, default=8)
    parser.add_argument("--run-dir", type=Path, default=Path("/run-directory"))
    parser.add_argument("--data-dir", type=Path, default=Path("/data-directory"))
    parser.add_argument("--model", default="")
    parser.add_argument("--platform", default="", help="whose GPUs are asked for their memory")
    parser.add_argument("--gpu-memory", type=int, help="of one GPU, in bytes")
    parser.add_argument("--node-memory", type=int, help="of one node, in bytes")
    parser.add_argument("--wandb", action="store_true", help="this account can log to Weights & Biases")
    parser.add_argument("--long", action="store_true", help="the time limit is over a day")
    parser.add_argument("--verl", default=installed("verl"), help="the version whose names are used")
    parser.add_argument("words", nargs="*", help="overrides, or after -- the training's command")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
