"""Parser for Slurm's host lists: ``gpu[01-03,7],login``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from verl_node.errors import BadSettings

_RANGE = re.compile(r"(\d+)-(\d+)")
_MOST_HOSTS = 1 << 16  # Slurm's own MAX_RANGE is of this order; more is a typo


def expand(text: str) -> list[str]:
    """Return the hosts of a Slurm host list in its order, as ``scontrol show hostnames`` prints them.

    Understands several brackets in a name, brackets in brackets, suffixes and zero padding. Raises BadSettings.
    """
    hosts: list[str] = []
    for name in _split(text):
        hosts += _expand_name(name, text)
        if len(hosts) > _MOST_HOSTS:
            raise _unreadable(text, f"it names more than {_MOST_HOSTS} hosts")
    return hosts


def _expand_name(name: str, whole: str) -> list[str]:
    parts = [_expand_bracket(part[1:-1], whole) if part.startswith("[") else [part] for part in _parts(name, whole)]
    if not parts:
        raise _unreadable(whole, "a name is missing")
    size = 1
    for part in parts:
        size *= len(part)
    if size > _MOST_HOSTS:
        raise _unreadable(whole, f"it names more than {_MOST_HOSTS} hosts")
    return ["".join(pieces) for pieces in product(*parts)]


def _expand_bracket(inside: str, whole: str) -> list[str]:
    names: list[str] = []
    for item in _split(inside):
        limits = _RANGE.fullmatch(item)
        if limits is None:
            names += _expand_name(item, whole)
            continue
        first, last = int(limits[1]), int(limits[2])
        if not first <= last < first + _MOST_HOSTS:
            raise _unreadable(whole, f"the range {item} is empty or too long")
        names += [str(number).zfill(len(limits[1])) for number in range(first, last + 1)]
    return names


def _parts(name: str, whole: str) -> Iterator[str]:
    """Cut ``a[1-2]b`` into ``a``, ``[1-2]`` and ``b``; only the outermost brackets count."""
    start = depth = 0
    for position, character in enumerate(name):
        if character == "[":
            if depth == 0 and position > start:
                yield name[start:position]
            start = position if depth == 0 else start
            depth += 1
        elif character == "]":
            depth -= 1
            if depth == 0:
                yield name[start : position + 1]
                start = position + 1
        if depth < 0:
            break
    if depth != 0:
        raise _unreadable(whole, "its brackets do not match")
    if start < len(name):
        yield name[start:]


def _split(text: str) -> Iterator[str]:
    """Cut at the commas that stand in no bracket."""
    start = depth = 0
    for position, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    yield text[start:]


def _unreadable(text: str, why: str) -> BadSettings:
    return BadSettings(
        f"The host list {text!r} cannot be read: {why}.",
        fix="Compare SLURM_JOB_NODELIST with `scontrol show hostnames`.",
    )
