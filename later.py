"""Modules that are found when they are imported, and run when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import Any


class Later:
    """Finds those whose names begin so; what they import runs with them, since threads may use it first."""

    def __init__(self, beginnings: tuple[str, ...]) -> None:
        self._beginnings = beginnings

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name.startswith(self._beginnings) else None
        if spec and spec.loader:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def later(*beginnings: str) -> Iterator[None]:
    """So are those that are imported meanwhile."""
    finder = Later(beginnings)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def promised(module: str, name: str) -> Iterator[None]:
    """A class of a module that is not imported yet: who asks for it meanwhile gets what imports it to make one."""

    def make(*words: Any, **named: Any) -> Any:
        return getattr(import_module(module), name)(*words, **named)

    stand_in = ModuleType(module)
    setattr(stand_in, name, make)
    sys.modules[module] = stand_in
    try:
        yield
    finally:
        del sys.modules[module]
