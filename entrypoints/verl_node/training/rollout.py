"""Imports the training's rollout in a child process, while the rest of the launch continues.

A package that is missing from the image would end the training minutes later, in the middle of Ray's output.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_node.errors import InputUnavailable
from verl_node.supervision.child import Process
from verl_node.supervision.waiting import Deadline, within

TIMEOUT_S = 600.0  # it has the lowest priority, and the packages may be on a cold file system
STAGE = "rollout"
_VERL = "verl."
_TRIES = 2  # an import may fail once because of a file system or full memory
# The fields of each answer of rollout_import.
_FIELDS = {"imported": (), "unknown": ("error",), "missing": ("module", "imported_by", "error")}
_ROLLOUT, _EXTERNAL = "rollout", "external_lib"


class RolloutImport:
    """The import on this node; it waits for `begin`, and ends with the job at the latest."""

    def __init__(self, host: str, note: Callable[[str], None]) -> None:
        self._host = host
        self._note = note
        self._begun = asyncio.Event()
        self._arguments: list[str] = []
        self._env: Mapping[str, str] = {}

    def begin(self, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        """Start the import of a rollout (see `arguments_of`), if there is one."""
        self._arguments, self._env = list(arguments), env
        self._begun.set()

    async def watch(self) -> None:
        """Import it. Raises InputUnavailable for a missing module; other failures are logged."""
        await self._begun.wait()
        if not self._arguments:
            return
        for tries_left in reversed(range(_TRIES)):
            answer = await self._run()
            if answer.get("rollout") != "missing":
                break
            if not tries_left:
                raise self._unavailable(answer)
        if answer.get("rollout") != "imported":
            name = self._arguments[0]
            self._note(f"warning: the rollout {name} could not be imported; training may fail: {answer['error']}")

    async def _run(self) -> dict[str, Any]:
        """Run the process; return its answer, or its exit code and last lines as an error."""
        answers: list[dict[str, Any]] = []

        def read_answer(line: str) -> None:
            if (answer := _answer(line)) is not None:
                answers.append(answer)

        argv = ["python3", "-m", "verl_node.training.rollout_import", *self._arguments]
        process = await Process.start(argv, self._env, on_line=read_answer)
        try:
            code = await within(Deadline(TIMEOUT_S), process.ended())
        except asyncio.TimeoutError:
            process.kill()
            return {"error": f"it took longer than {TIMEOUT_S:.0f} s"}
        return answers[-1] if answers else {"error": f"{code}: {' | '.join(list(process.last_lines)[-3:])}"}

    def _unavailable(self, answer: Mapping[str, str]) -> InputUnavailable:
        name, module = self._arguments[0], answer["module"] or f"of {self._arguments[0]}"
        by = f" ({answer['imported_by']})" if answer["imported_by"] else ""
        return InputUnavailable(
            f"The rollout {name} needs the module {module}, which cannot be imported on {self._host}: "
            f"{' '.join(answer['error'].split())}{by}.",
            fix="Use an image that has it (docs/images.md), or add it in your own Dockerfile; check the packages on "
            "PYTHONPATH and in VERLJOB_VERL, too: they come before the image's.",
            host=self._host,
            stage=STAGE,
        )


def _answer(line: str) -> dict[str, Any] | None:
    """Parse an answer of `verl_node.training.rollout_import`; None for any other line."""
    if not line.startswith('{"rollout"'):
        return None
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        return None
    fields = _FIELDS.get(str(answer["rollout"]))
    return answer if fields is not None and all(isinstance(answer.get(key), str) for key in fields) else None


def arguments_of(configuration: Path, module: str) -> list[str]:
    """Return name, mode and external libraries of the rollout in a training's resolved configuration.

    Empty for a trainer that is not verl's own, which may not need these modules.
    """
    if not module.startswith(_VERL):
        return []
    try:
        values = json.loads(configuration.read_text(encoding="utf-8"))["configuration"]
    except (OSError, ValueError, KeyError):  # the check of the configuration reports it
        return []
    roles = values.get("actor_rollout_ref") or {}
    rollout, external = roles.get(_ROLLOUT) or {}, (roles.get("model") or {}).get(_EXTERNAL)
    if not rollout.get("name"):
        return []
    libraries = external if isinstance(external, list) else [external] if external else []
    return [str(rollout["name"]), str(rollout.get("mode") or "sync"), *map(str, libraries)]
