"""`python3 -m verl_node.prepare`: makes data sets and models on one node.

The supervisor never imports torch: this process does, ends, and gives the memory back. It says what it does as JSON
lines on stdout, in the fields of events.jsonl; the last line of a failure also has `code`, `cause` and `fix`, and the
code is the exit code. HF_HUB_OFFLINE must not be set where something is to be fetched.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from verl_node.errors import InputUnavailable, NodeError
from verl_node.inputs import data, model

Note = Callable[[str], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare what the arguments name; 0, or the code of the error that was reported."""
    options = _parse(arguments)
    try:
        with _phase("data") as note:
            for name in options.dataset:
                files = data.ensure(name, options.data_dir, options.source)
                note(f"{name}: {files.train} and {files.val.name}")
            for path in options.file:
                _check_file(path)
        with _phase("model") as note:
            for name in options.model:
                note(f"{name}: {model.ensure(name, options.data_dir)} is whole")
            if options.configuration:
                _hold_against(options.configuration)
    except NodeError as error:
        return error.code
    return 0


@contextmanager
def _phase(phase: str) -> Iterator[Note]:
    """Report a phase's begin and end, or its error."""
    begin = time.monotonic()
    said: list[str] = []
    _report(phase, "begin")
    try:
        yield said.append
    except NodeError as error:
        cause = " ".join(error.cause.split())  # libraries like to say more than one line, a verdict has one
        _report(phase, "error", message=f"{cause} {error.fix}", code=error.code, cause=cause, fix=error.fix)
        raise
    _report(phase, "end", seconds=round(time.monotonic() - begin, 3), message="; ".join(said))


def _report(phase: str, event: str, **more: object) -> None:
    print(json.dumps({"time": time.time(), "phase": phase, "event": event, **more}), flush=True)  # noqa: T201


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise InputUnavailable(f"The data file {path} is not on this node.", fix="Give a path that every node sees.")


def _hold_against(configuration: Path) -> None:
    """Hold the model and the data against the configuration, where the head's first look could keep one."""
    from verl_node.configuration import check
    from verl_node.configuration.finding import ERROR, require_no_errors

    if not configuration.is_file():
        return
    findings = check.check_inputs(*check.saved(configuration))
    for found in findings:
        if found.severity != ERROR:
            _report("model", "note", message=found.sentence())
    require_no_errors(findings)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m verl_node.prepare", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="where data sets and made models lie")
    parser.add_argument("--source", type=Path, help="folder with raw data sets, for sites without the hub")
    parser.add_argument("--dataset", action="append", default=[], metavar="NAME", help="data set to make")
    parser.add_argument(
        "--file", action="append", default=[], type=Path, help="data file of the user that must be there"
    )
    parser.add_argument("--model", action="append", default=[], metavar="NAME", help="model to make, fetch or check")
    parser.add_argument("--configuration", type=Path, help="the training's, against which model and data are held")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
