"""Imports the training's rollout in a child process, while the rest of the launch goes on.

A package that the image lacks would end the training minutes later, in the middle of Ray's own words.
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

TIMEOUT_S = 600.0  # it stands back behind the training, and what it reads may lie on a file system that is cold
STAGE = "rollout"
_OF_VERL = "verl."
_TRIES = 2  # a file system or a full memory may fail an import once
# The fields of each answer of rollout_import.
_FIELDS = {"imported": (), "unknown": ("said",), "missing": ("module", "wanted_by", "said")}
_ROLLOUT, _EXTERNAL = "rollout", "external_lib"


class RolloutImport:
    """The import on this node: it waits to be begun, and is over with the job at the latest."""

    def __init__(self, host: str, note: Callable[[str], None]) -> None:
        self._host = host
        self._note = note
        self._begun = asyncio.Event()
        self._words: list[str] = []
        self._env: Mapping[str, str] = {}

    def begin(self, words: Sequence[str], env: Mapping[str, str]) -> None:
        """Import what ``words`` name (see `words`) in the environment of the training; without any, nothing."""
        self._words, self._env = list(words), env
        self._begun.set()

    async def watch(self) -> None:
        """Import it. Raises InputUnavailable for a module that cannot be imported; anything else is noted."""
        await self._begun.wait()
        if not self._words:
            return
        for tries_left in reversed(range(_TRIES)):
            told = await self._told()
            if told.get("rollout") != "missing":
                break
            if not tries_left:
                raise self._unavailable(told)
        if told.get("rollout") != "imported":
            self._note(f"warning: the rollout {self._words[0]} was not imported, training will tell: {told['said']}")

    async def _told(self) -> dict[str, Any]:
        """Return what the process answered, else what became of it."""
        answers: list[dict[str, Any]] = []

        def take(line: str) -> None:
            if (answer := _answer(line)) is not None:
                answers.append(answer)

        argv = ["python3", "-m", "verl_node.training.rollout_import", *self._words]
        process = await Process.start(argv, self._env, on_line=take)
        try:
            code = await within(Deadline(TIMEOUT_S), process.ended())
        except asyncio.TimeoutError:
            process.kill()
            return {"said": f"it took longer than {TIMEOUT_S:.0f} s"}
        return answers[-1] if answers else {"said": f"{code}: {' | '.join(list(process.last_lines)[-3:])}"}

    def _unavailable(self, told: Mapping[str, str]) -> InputUnavailable:
        name, module = self._words[0], told["module"] or f"of {self._words[0]}"
        by = f" ({told['wanted_by']})" if told["wanted_by"] else ""
        return InputUnavailable(
            f"The rollout {name} needs the module {module}, which cannot be imported on {self._host}: "
            f"{' '.join(told['said'].split())}{by}.",
            fix="Use an image that has it (docs/images.md), or add it in a Dockerfile of your own; look at what "
            "PYTHONPATH and VERLJOB_VERL put before the image's packages, too.",
            host=self._host,
            stage=STAGE,
        )


def _answer(line: str) -> dict[str, Any] | None:
    """Return what `verl_node.training.rollout_import` printed, None for a line of a library's that looks like it."""
    if not line.startswith('{"rollout"'):
        return None
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        return None
    fields = _FIELDS.get(str(answer["rollout"]))
    return answer if fields is not None and all(isinstance(answer.get(key), str) for key in fields) else None


def words(configuration: Path, module: str) -> list[str]:
    """Return name, mode and external libraries of the rollout of a training, out of its resolved configuration.

    None for a trainer that is not verl's own, which may do without what verl's import.
    """
    if not module.startswith(_OF_VERL):
        return []
    try:
        values = json.loads(configuration.read_text(encoding="utf-8"))["configuration"]
    except (OSError, ValueError, KeyError):  # the look at the configuration said so
        return []
    roles = values.get("actor_rollout_ref") or {}
    rollout, external = roles.get(_ROLLOUT) or {}, (roles.get("model") or {}).get(_EXTERNAL)
    if not rollout.get("name"):
        return []
    libraries = external if isinstance(external, list) else [external] if external else []
    return [str(rollout["name"]), str(rollout.get("mode") or "sync"), *map(str, libraries)]
