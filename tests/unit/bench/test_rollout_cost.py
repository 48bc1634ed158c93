"""bench/launch/rollout_cost.py takes the import out of the module that does it."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType
from typing import Any

import pytest

from bench.launch.rollout_cost import DOCKERFILE, MODULE, PATCH
from tests.support.paths import ENTRYPOINTS


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("patched_rollout")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    text = (ENTRYPOINTS / MODULE).read_text() + PATCH
    exec(compile(text, MODULE, "exec"), vars(module))  # noqa: S102
    return module


def test_the_patched_module_ends_without_an_import(patched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    async def run() -> None:
        rollout = patched.RolloutImport("n1", print)
        rollout.begin(["vllm", "async"], {})
        await asyncio.wait_for(rollout.watch(), 5)

    monkeypatch.setattr(patched.Process, "start", start)
    asyncio.run(run())


def test_every_line_of_the_patch_is_in_the_dockerfile() -> None:
    assert all(f"'{line}'" in DOCKERFILE for line in PATCH.splitlines())
