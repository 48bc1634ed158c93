"""`python3 -m verl_node.configuration`: checks a training's configuration, without a GPU and before Ray.

    python3 -m verl_node.configuration --recipe FILE --nodes 2 --gpus-per-node 8 [--print] [OVERRIDE…]
    python3 -m verl_node.configuration --save FILE -- python3 -m MODULE OVERRIDE…

The first form is for users, the second for a job, whose head passes the whole command: it prints a line of JSON at once
and one with the findings of verl's validation, and saves the configuration for prepare, which checks it with the model.
The exit code is 0, or 65 after an error.
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
from dataclasses import asdict
from pathlib import Path

from verl_node.configuration import check
from verl_node.configuration.facts import Facts, model_folder
from verl_node.configuration.finding import ERROR, NOTE, WARNING, Finding, error, errors, note
from verl_node.configuration.rules.enum_values import installed_engines
from verl_node.errors import BadTrainingConfig, InputUnavailable, NodeError
from verl_node.gpu import usage
from verl_node.inputs import hub
from verl_node.inputs.model import DEMO
from verl_node.reporting.masking import masked
from verl_node.settings.identity import installed
from verl_node.settings.parsing import image_overrides
from verl_node.training import attention, external_modules, recipe, releases

_NICE = 10  # forming the cluster meanwhile needs the CPUs


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the configuration, print the findings, and return the exit code."""
    began = time.monotonic()
    options = _parse(arguments)
    facts = Facts(
        gpu_memory=options.gpu_memory or usage.memory_bytes(options.platform),
        node_memory=options.node_memory,
        wandb=options.wandb,
        engines=installed_engines(),
        vllm=installed("vllm"),
    )
    if options.print:
        return _print_command(options)
    if options.save:
        os.nice(_NICE)
        inspection = check.check_command(options.arguments, _choices(options.verl), facts)
        if inspection.config is not None:
            check.save(options.save, inspection.config, facts)
        findings = [*_printed(inspection.findings), *_printed(inspection.verl_findings())]
    else:
        findings = _check_recipe(options, facts)
        print(_text(options, findings, time.monotonic() - began), flush=True)  # noqa: T201
    return BadTrainingConfig.code if any(errors(findings)) else 0


def _printed(findings: list[Finding]) -> list[Finding]:
    print(json.dumps({"findings": [asdict(finding) for finding in findings]}), flush=True)  # noqa: T201
    return findings


def _training(options: argparse.Namespace) -> recipe.Training:
    """Return the training as a job would plan it. Raises NodeError."""
    return recipe.make_training(
        recipe.load(options.recipe),
        options.arguments,
        image_overrides=image_overrides(os.environ),
        verl_version=options.verl,
        nodes=options.nodes,
        gpus_per_node=options.gpus_per_node,
        run_dir=options.run_dir,
        data_dir=options.data_dir,
        model=options.model or None,
        wandb=options.wandb,
        long=options.long,
        flash_attn=attention.flash_attn_installed(),
        given_modules=os.environ.get(external_modules.NAME, ""),
    )


def _print_command(options: argparse.Namespace) -> int:
    """Print the training's command with its variables, with secrets masked."""
    try:
        training = _training(options)
    except NodeError as failure:
        print(f"{failure.cause} {failure.fix}", file=sys.stderr)  # noqa: T201
        return failure.code
    argv = ["env", *(f"{name}={value}" for name, value in training.env.items()), *training.argv]
    print(masked(shlex.join(argv)), flush=True)  # noqa: T201
    return 0


def _check_recipe(options: argparse.Namespace, facts: Facts) -> list[Finding]:
    """Plan the training as a job would, and apply all checks."""
    try:
        training = _training(options)
    except NodeError as failure:
        return [error("", failure.cause, failure.fix)]
    findings = [note("", text) for text in training.notes]
    with ThreadPoolExecutor() as pool:
        downloads = [pool.submit(_download, name) for name in training.models]
        inspection = check.check_command(training.argv, _choices(options.verl), facts)
        findings += [*inspection.findings, *inspection.verl_findings()]
        not_downloaded = [finding for download in downloads for finding in download.result()]
    if inspection.config is None or any(errors(findings)):
        return findings
    demo = inspection.config.get("actor_rollout_ref.model.path") if DEMO in training.models else None
    if demo and not model_folder(demo):
        of_inputs = [note("", f"{DEMO} is made by the job: nothing is checked against it.")]
    else:
        of_inputs = check.check_inputs(inspection.config, facts)
    return [*findings, *not_downloaded, *of_inputs]


def _download(name: str) -> list[Finding]:
    """Download the config.json of a hub's model that is not cached; an unreachable hub takes 7 s."""
    if name.startswith("/") or name == DEMO or model_folder(name):
        return []
    try:
        hub.configuration(name)
    except InputUnavailable as failure:
        return [note("", failure.cause)]
    return []


def _choices(verl: str) -> Mapping[str, Sequence[str]]:
    try:
        return releases.load(verl).choices
    except BadTrainingConfig:  # reported when the recipe is translated
        return {}


def _text(options: argparse.Namespace, findings: Sequence[Finding], seconds: float) -> str:
    nodes, gpus = options.nodes, options.gpus_per_node
    lines = [f"{options.recipe.stem} with verl {options.verl} on {nodes} nodes with {gpus} GPUs each"]
    for severity in (ERROR, WARNING, NOTE):
        lines += [
            f"{severity:<8} {finding.cause} {finding.fix}".rstrip()
            for finding in findings
            if finding.severity == severity
        ]
    count = sum(finding.severity == ERROR for finding in findings)
    verdict = f"{count} error{'s' * (count != 1)}" if count else "no errors"
    return "\n".join([*lines, f"{verdict}, after {seconds:.1f} s"])


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m verl_node.configuration", description=__doc__)
    parser.add_argument("--recipe", type=Path, help="a file of slurm/recipes/")
    parser.add_argument(
        "--save", type=Path, help="run for a job: the file in which to save the configuration for prepare"
    )
    parser.add_argument("--print", action="store_true", help="print the training's command and exit")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--gpus-per-node", type=int, default=8)
    parser.add_argument("--run-dir", type=Path, default=Path("/run-directory"))
    parser.add_argument("--data-dir", type=Path, default=Path("/data-directory"))
    parser.add_argument("--model", default="")
    parser.add_argument("--platform", default="", help="platform of the GPUs whose memory to query")
    parser.add_argument("--gpu-memory", type=int, help="memory of a GPU, in bytes")
    parser.add_argument("--node-memory", type=int, help="memory of a node, in bytes")
    parser.add_argument("--wandb", action="store_true", help="this account can log to Weights & Biases")
    parser.add_argument("--long", action="store_true", help="the time limit is over a day")
    parser.add_argument("--verl", default=installed("verl"), help="version of verl whose keys to use")
    parser.add_argument("arguments", nargs="*", help="overrides; with --save the training's command, after --")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
