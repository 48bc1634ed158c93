"""Brings data and model of a recipe to the folders of jobs, with the image's own code, where there is internet."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from slurm.errors import CannotStage
from slurm.jobs import container

_MODULE = "verl_node.stage"
_EVENTS = ("note", "end", "error")


def bring(
    recipe: Path, overrides: Sequence[str], image: str, environ: Mapping[str, str], print_line: Callable[[str], None]
) -> None:
    """Make what a job of ``recipe`` would, in VERLJOB_DATA and HF_HOME, and print each phase. Raises CannotStage."""
    data, hub = container.data_folder(environ), container.hub_folder(environ)
    for folder in (data, hub):
        folder.mkdir(parents=True, exist_ok=True)
    python = container.Python(image, recipe, environ, writable=(data, hub))
    if python.runtime not in ("docker", "podman", "bare"):
        raise CannotStage(
            f"Inputs cannot be staged with VERLJOB_RUNTIME={python.runtime}: use docker, podman or bare on this "
            "machine. The folders are the same for all runtimes."
        )
    argv = python.argv(["-m", _MODULE, *_flags(recipe, data, environ), "--", *overrides])
    try:
        process = subprocess.Popen(argv, env=python.env(), stdout=subprocess.PIPE, text=True, errors="replace")
    except OSError as failed:
        raise CannotStage(f"{argv[0]} could not be started: {failed}.") from failed
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            for text in _printed(line):
                print_line(text)
    if process.returncode:
        raise CannotStage(f"{image} ended with {process.returncode}: see the lines above.")


def _flags(recipe: Path, data: Path, environ: Mapping[str, str]) -> Iterator[str]:
    yield from ("--recipe", str(recipe), "--data-dir", str(data))
    for flag, name in (("--source", "VERLJOB_DATA_SOURCE"), ("--model", "VERLJOB_MODEL")):
        yield from (flag, environ[name]) if environ.get(name) else ()


def _printed(line: str) -> Iterator[str]:
    """Yield the text of a report of verl_node.prepare, or another line as it is."""
    try:
        report = json.loads(line)
    except ValueError:
        yield line.rstrip()
        return
    if isinstance(report, dict) and report.get("event") in _EVENTS and report.get("message"):
        yield f"{report.get('phase', ''):<10} {report['message']}"
