"""Messages of the control channel: one frozen dataclass each, the table of kinds, encoding and validated decoding.

On the wire a message is a JSON object: its fields, and its ``kind``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

from verl_node.checks.cluster import Report
from verl_node.checks.result import Outcome
from verl_node.errors import CheckFailed
from verl_node.reporting.events import Event
from verl_node.reporting.verdict import Verdict
from verl_node.settings.identity import Identity

PROTOCOL = 3
"""Raise it with every change of a message: a head refuses a worker of another version. Challenge, Answer, Refused and
the ``protocol`` of Hello never change, since nodes of any two versions exchange them."""

JsonObject = Mapping[str, Any]
Count = int
"""An integer that is not negative."""


class Message:
    """Base class of all messages."""


M = TypeVar("M", bound=Message)


@dataclass(frozen=True)
class Challenge(Message):
    """Random hex digits of the head, which the worker signs; empty without a token."""

    challenge: str


@dataclass(frozen=True)
class Answer(Message):
    """The signed challenges; the worker's also has its own challenge."""

    answer: str
    challenge: str = ""


@dataclass(frozen=True)
class Refused(Message):
    """The head refuses a connection, a hello or a resume."""

    why: str
    fix: str = ""


@dataclass(frozen=True)
class Hello(Message):
    """First message of a worker."""

    identity: Identity
    protocol: int = PROTOCOL


@dataclass(frozen=True)
class Welcome(Message):
    """Accepts a Hello; ``session`` is the secret by which the worker resumes over another connection."""

    node_id: Count
    session: str


@dataclass(frozen=True)
class Resume(Message):
    """Continues a session; ``attempt`` grows with each, ``received`` is the number of the last message received."""

    session: str
    node_id: Count
    attempt: Count
    received: Count


@dataclass(frozen=True)
class Resumed(Message):
    """Accepts a Resume."""

    received: Count


@dataclass(frozen=True)
class WorkerEvent(Message):
    """An event of the worker's journal."""

    event: Event


@dataclass(frozen=True)
class ChecksDone(Message):
    """Results of the worker's checks, and its clock in epoch seconds."""

    report: Report
    time: float


@dataclass(frozen=True)
class Prepared(Message):
    """Data and model are ready on the worker."""


@dataclass(frozen=True)
class MetricsRow(Message):
    """A row of the worker's GPUs for metrics.jsonl."""

    row: dict[str, Any]


@dataclass(frozen=True)
class StacksWritten(Message):
    """The worker wrote the stack traces of a hang."""

    hang: Count


@dataclass(frozen=True)
class Failed(Message):
    """The worker ends by this verdict."""

    verdict: Verdict


@dataclass(frozen=True)
class StartRay(Message):
    """Join Ray's GCS; ``temp_dir`` is that of the head's Ray, ``env`` holds the variables of the training."""

    gcs: str
    temp_dir: str
    env: dict[str, str]


@dataclass(frozen=True)
class Formed(Message):
    """Every node has joined Ray."""


@dataclass(frozen=True)
class Checked(Message):
    """The cluster checks are over: processes that Ray starts late may start."""


@dataclass(frozen=True)
class Prepare(Message):
    """Run the command ``argv``, and import the rollout (`verl_node.training.rollout.arguments_of`)."""

    argv: list[str]
    rollout: list[str]


@dataclass(frozen=True)
class Step(Message):
    """verl logged a step."""

    step: int


@dataclass(frozen=True)
class TakeStacks(Message):
    """Write the stack traces of the n-th hang."""

    hang: Count


@dataclass(frozen=True)
class JobEnded(Message):
    """The job ended by this verdict."""

    verdict: Verdict


HANDSHAKE = (Challenge, Answer, Refused, Hello, Welcome, Resume, Resumed)
"""Messages before a session."""
TO_HEAD = (WorkerEvent, ChecksDone, Prepared, MetricsRow, StacksWritten, Failed)
"""Messages of a worker's session."""
TO_WORKER = (StartRay, Formed, Checked, Prepare, Step, TakeStacks, JobEnded)
"""Messages of the head's session."""

KINDS: dict[str, type[Message]] = {
    re.sub("(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower(): cls for cls in (*HANDSHAKE, *TO_HEAD, *TO_WORKER)
}
"""The classes by their ``kind`` on the wire: StartRay is start-ray."""
_KIND_OF = {cls: kind for kind, cls in KINDS.items()}
_NESTED = {cls.__name__: cls for cls in (Event, Identity, Outcome, Report, Verdict)}
# JSON types by the annotations that the fields above have.
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "Count": (int,),
    "float": (int, float),
    "float | None": (int, float, type(None)),
    "list[str]": (list,),
    "dict[str, str]": (dict,),
    "dict[str, Any]": (dict,),
    "Facts": (dict,),
    "list[Outcome]": (list,),
}


class Unreadable(CheckFailed):
    """A message that is not one of the table: its sender is of another version, or has a mistake."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(
            f"A node sent a message that version {PROTOCOL} of the control protocol cannot read: {problem}.",
            fix="Start the same image (by digest) on every node; else report it.",
        )


def encode(message: Message) -> bytes:
    """Return the message as JSON."""
    return json.dumps({"kind": _KIND_OF[type(message)], **vars(message)}, default=vars).encode()


def decode(raw: JsonObject, *accepted: type[M]) -> M:
    """Return the message if it is one of the ``accepted`` classes and all of its fields fit. Raises Unreadable.

    Raises CheckFailed for a Hello of another version.
    """
    kind = raw.get("kind") if isinstance(raw, dict) else None
    if not isinstance(kind, str):
        raise Unreadable("a message without a kind")
    cls = KINDS.get(kind)
    if cls is None:
        raise Unreadable(f"{kind[:40]!r} is not a kind of message")
    if not issubclass(cls, accepted):
        raise Unreadable(f"{kind!r} is out of place, {' or '.join(repr(_KIND_OF[one]) for one in accepted)} fits")
    if cls is Hello and raw.get("protocol") != PROTOCOL:
        raise _other_version(raw)
    return _build(cls, {name: value for name, value in raw.items() if name != "kind"})


def read_count(raw: JsonObject, name: str) -> int:
    """Return a field of a frame that is an integer and not negative. Raises Unreadable."""
    return int(_value(name, "Count", raw.get(name)))


def _other_version(hello: JsonObject) -> CheckFailed:
    version = str(hello.get("protocol", "2 or older"))[:20]
    return CheckFailed(
        f"The worker speaks version {version} of the control protocol, the head version {PROTOCOL}.",
        fix="Start the same image (by digest) on every node.",
        failure_class="image",
    )


T = TypeVar("T")


def _build(cls: type[T], given: Any) -> T:
    """Make a dataclass of its fields in JSON. Raises Unreadable unless names and types fit."""
    if type(given) is not dict:
        raise Unreadable(f"{cls.__name__} is {type(given).__name__}")
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]  # T is a dataclass
    if unknown := given.keys() - known.keys():
        raise Unreadable(f"{cls.__name__} has an unexpected {sorted(unknown)[0][:40]!r}")
    values = {name: _value(f"{name} of {cls.__name__}", str(known[name].type), given[name]) for name in given}
    required = (field.name for field in known.values() if field.default is field.default_factory is MISSING)
    if missing := [name for name in required if name not in given]:
        raise Unreadable(f"{', '.join(missing)} of {cls.__name__} is missing")
    return cls(**values)


def _value(name: str, annotation: str, value: Any) -> Any:
    if annotation in _NESTED:
        return _build(_NESTED[annotation], value)
    if type(value) not in _JSON_TYPES[annotation]:
        raise Unreadable(f"{name} is {type(value).__name__}, not {annotation}")
    if annotation == "Count" and value < 0:
        raise Unreadable(f"{name} is {value}, less than 0")
    if annotation == "list[Outcome]":
        return [_build(Outcome, outcome) for outcome in value]
    texts = value if annotation == "list[str]" else value.values() if annotation == "dict[str, str]" else ()
    if any(type(text) is not str for text in texts):
        raise Unreadable(f"{name} is not {annotation}")
    return value
