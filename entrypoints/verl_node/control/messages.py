"""Decodes the messages of the control channel into typed values, or refuses them."""

from __future__ import annotations

import time
from dataclasses import fields
from typing import Any, TypeVar

from verl_node.checks.cluster import Report
from verl_node.checks.result import Outcome
from verl_node.errors import CheckFailed
from verl_node.reporting.events import Event
from verl_node.reporting.verdict import Verdict

Message = dict[str, Any]
T = TypeVar("T")

_TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float)}


class Unreadable(CheckFailed):
    """A node that knows the token sent what has another form: another version of the toolkit, most often."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"A node sent what this one cannot read: {what}.",
            fix="Bring the same image (by digest) to every node; else report it.",
        )


def built(cls: type[T], given: Any) -> T:
    """Make a dataclass of texts and numbers of what was given. Raises Unreadable unless names and types fit."""
    if not isinstance(given, dict):
        raise Unreadable(f"{cls.__name__} is {type(given).__name__}")
    for field in fields(cls):  # type: ignore[arg-type]  # T is a dataclass
        if field.name in given and type(given[field.name]) not in _TYPES[str(field.type)]:
            raise Unreadable(f"{field.name} of {cls.__name__} is {type(given[field.name]).__name__}")
    try:
        return cls(**given)
    except TypeError as error:  # a name that is missing or not known
        raise Unreadable(f"{cls.__name__}: {error}") from error


def count(message: Message, name: str) -> int:
    """Read a number from 0. Raises Unreadable."""
    value = message.get(name)
    if type(value) is not int or value < 0:
        raise Unreadable(f"{name} is {str(value)[:40]!r}")
    return value


def text(message: Message, name: str) -> str:
    """Read a text. Raises Unreadable."""
    return str(_typed(message, name, str))


def event(message: Message) -> Event:
    """Read an event of a node's journal. Raises Unreadable."""
    given = _dict(message, "event")
    for name in ("host", "phase", "event", "message"):
        _typed(given, name, str)
    for name in {"seconds", "time"} & given.keys():
        _typed(given, name, int, float)
    return given


def verdict(message: Message) -> Verdict:
    """Read how a node or the job ended. Raises Unreadable."""
    return built(Verdict, message.get("verdict"))


def report(message: Message) -> Report:
    """Read what a worker says of its checks; its clock is held against ours at the moment in which it arrives.

    Raises Unreadable.
    """
    told = _dict(message, "report")
    outcomes = [built(Outcome, outcome) for outcome in _typed(told, "outcomes", list)]
    skew_s = round(_typed(message, "time", int, float) - time.time(), 3)
    return Report(_typed(told, "host", str), outcomes, _dict(told, "facts"), skew_s)


def _dict(message: Message, name: str) -> dict[str, Any]:
    return dict(_typed(message, name, dict))


def _typed(message: Message, name: str, *types: type) -> Any:
    value = message.get(name)
    if type(value) not in types:
        raise Unreadable(f"{name} is {type(value).__name__}")
    return value
