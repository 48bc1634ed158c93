"""`python3 -m verl_node.prepare`: makes data sets and models on one node.

The supervisor never imports torch: this process does, and frees the memory when it ends. It prints JSON lines with the
fields of events.jsonl; the last line of a failure also has `code`, `cause` and `fix`, and the code is the exit code.
HF_HUB_OFFLINE must not be set if something has to be fetched.
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
    """Prepare the data sets and models of the arguments; return 0 or the code of the reported error."""
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
                note(f"{name}: {model.ensure(name, options.data_dir)} is complete")
            if options.configuration:
                _check_configuration(options.configuration)
    except NodeError as error:
        return error.code
    return 0


@contextmanager
def _phase(phase: str) -> Iterator[Note]:
    """Report begin and end of a phase, or its error."""
    begin = time.monotonic()
    notes: list[str] = []
    _report(phase, "begin")
    try:
        yield notes.append
    except NodeError as error:
        cause = " ".join(error.cause.split())  # a library's error may have several lines, a verdict has one
        _report(phase, "error", message=f"{cause} {error.fix}", code=error.code, cause=cause, fix=error.fix)
        raise
    _report(phase, "end", seconds=round(time.monotonic() - begin, 3), message="; ".join(notes))


def _report(phase: str, event: str, **fields: object) -> None:
    print(json.dumps({"time": time.time(), "phase": phase, "event": event, **fields}), flush=True)  # noqa: T201


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise InputUnavailable(
            f"The data file {path} does not exist on this node.", fix="Use a path that exists on every node."
        )


def _check_configuration(configuration: Path) -> None:
    """Check model and data against the training's configuration, if the head could resolve it."""
    from verl_node.configuration import check
    from verl_node.configuration.finding import ERROR, require_no_errors

    if not configuration.is_file():
        return
    findings = check.check_inputs(*check.saved(configuration))
    for finding in findings:
        if finding.severity != ERROR:
            _report("model", "note", message=finding.sentence())
    require_no_errors(findings)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m verl_node.prepare", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of data sets and created models")
    parser.add_argument("--source", type=Path, help="folder with raw data sets, for sites without the hub")
    parser.add_argument("--dataset", action="append", default=[], metavar="NAME", help="data set to create")
    parser.add_argument("--file", action="append", default=[], type=Path, help="data file of the user that must exist")
    parser.add_argument("--model", action="append", default=[], metavar="NAME", help="model to create, fetch or check")
    parser.add_argument("--configuration", type=Path, help="configuration of the training, to check model and data")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
