"""What is made of this checkout's own files alone, known again while none of them has changed.

The cells of the catalog, a cell's Dockerfile and whether it can work are the same until somebody edits images/ or
dockerfiles/. To make them anew loads Jinja, packaging and the rules, and compiles templates: longer than an engine
takes for a one-line edit of verl. Files are known by digests.py; Python, Jinja and packaging by where they lie
and when they were installed. What was edited a moment ago is not kept: this process may have loaded it before.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from images.host import digests
from images.host.paths import CACHE, ROOT

OWN = ("images", "dockerfiles")
LEFT_OUT = ("__pycache__", "rendered")  # made of the others
LIBRARIES = ("jinja2", "markupsafe", "packaging", "tomli")
# What makes loads modules that tasks.py has found and not run, and LazyLoader is not for two threads at once.
MAKING = threading.RLock()
SETTLED_NS = 60_000_000_000  # far longer than a process takes from its first import to here


def recalled(name: str, of: object, make: Callable[[], Any]) -> Any:
    """What ``make`` makes of ``of`` and of the checkout's files, or made before: something that JSON holds.

    Of a ``name`` the last is kept. A checkout that cannot be written to is a slower one, no error.
    """
    path, state = CACHE / f"{name}.json", _state(ROOT, CACHE)
    key = hashlib.sha256(json.dumps([state, of], sort_keys=True, default=vars).encode()).hexdigest()
    if (kept := _read(path)) and kept["key"] == key:
        return kept["value"]
    with MAKING:
        value = make()
    if state and state == _seen(ROOT, CACHE):
        with suppress(OSError):
            _write(path, {"key": key, "value": value})
    return value


@cache
def _state(root: Path, kept: Path) -> str:
    """That of this process, which does not load a file twice; nothing where something is too new to be kept."""
    return _seen(root, kept)


def _seen(root: Path, kept: Path) -> str:
    """The checkout's files and the libraries, as one digest."""
    told, known, now_ns = hashlib.sha256(sys.version.encode()), digests.at(kept / "files.json"), time.time_ns()
    for path, state in _files(root):
        if state.st_ctime_ns > now_ns - SETTLED_NS:
            return ""
        told.update(f"{path}\0{known.of(path, state)}\n".encode())
    for library in filter(None, map(find_spec, LIBRARIES)):
        for each in (str(library.origin), os.path.dirname(str(library.origin))):
            installed = os.stat(each)
            told.update(f"{each} {installed.st_ino} {installed.st_mtime_ns} {installed.st_ctime_ns}\n".encode())
    with suppress(OSError):
        known.keep()
    return told.hexdigest()


def _files(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    folders = [f"{root}/{each}" for each in OWN]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                if entry.is_dir() and entry.name not in LEFT_OUT:
                    folders.append(entry.path)
                elif entry.is_file():
                    yield entry.path, entry.stat()


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):  # none yet, or cut off
        return {}


def _write(path: Path, told: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    new.write_text(json.dumps(told), encoding="utf-8")
    new.replace(path)
