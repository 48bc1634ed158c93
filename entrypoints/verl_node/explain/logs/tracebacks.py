"""Parses Python tracebacks in logs with interleaved processes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from verl_node.explain.logs import lines

HEADS = (
    b"Traceback (most recent call last)",
    b"Unhandled error (suppress with",
    b"Exception raised in creation task: ",
    b"ray.exceptions.RayTaskError",
)
"""Heads of Python, and of Ray for unfetched results, actor creation, truncated tracebacks."""
_MAX_LINES = 400
_MAX_MESSAGE_LINES = 4
# Exceptions that wrap another one, or react to the end of another process: never the root cause.
_WRAPPER = re.compile(
    rb"^(?:ray\.exceptions\.)?RayTaskError\b|^(?:\w+\.)*RemoteTraceback:|^ray::|^The above exception was the direct"
    rb"|^(?:ray\.exceptions\.)?ActorDiedError: The actor died because of an error raised in its creation"
    rb"|^\w+: Caught \w+ in \w+ (?:worker process|\d)"
    rb"|^(?:[\w.]+\.)?ProcessRaisedException:|^-- Process \d+ terminated with"
    rb"|^(?:ray\.exceptions\.)?RaySystemError: System error: Failed to unpickle|^torch\._dynamo\.exc\.\w+: .* raised:$"
)
_CHAINED = b"The above exception was the direct cause"
_CHAINED_BYTES = 200
_REACTION = re.compile(
    rb"^(?:[\w.]*\.)?(?:ChildFailedError|SystemExit|KeyboardInterrupt|CancelledError|BrokenPipeError"
    rb"|CalledProcessError(?!: Command .{0,3}[^\s']*(?:ptxas|nvcc|ninja)\b)"
    rb"|ConnectionResetError|ConnectionAbortedError|EOFError|BrokenProcessPool|ProcessExitedException|SignalException)\b"
)
_IGNORED = (b"Exception ignored in", b"exception ignored in")
_EXCEPTION = re.compile(rb"(?:[A-Za-z_]\w{0,80}\.){0,9}(?:_{0,2}[A-Z]\w{0,80})?(?:Error|Exception)\b")
# The first frame of an exception during cleanup.
_CLEANUP = re.compile(rb"File \"[^\"]*(?:multiprocessing/resource_tracker\.py\"|\", line \d+, in __del__)")
# Rich draws a box around a traceback; a notebook marks the line with an arrow.
_INSIDE = re.compile(
    rb"^(?:\s|$|File \"|\^|~|\[repeated |\[Previous line repeated|\xe2\x94\x82|\xe2\x95\xad|\xe2\x95\xb0"
    rb"|-+> \d+ |\d+ frames$|/\S+ in \w+\(|(?:Cell|Input) In ?\[|File [/~])"
)
# Lines of launchers and trackers, which may interrupt a traceback.
_LAUNCHERS = re.compile(rb"^(?:srun|slurmstepd[\w-]*|wandb|mpirun|prterun|pyxis): ")
_FRAME = re.compile(
    r"^(?: *File \"|\u2502 )(?P<path>[^\"\s][^\":]*)(?:\", line |:)(?P<number>\d+)(?:,? in (?P<function>\S+))?"
)
_PACKAGES = re.compile(r"^.*/(?:site|dist)-packages/")
# A library in a checkout: NAME/NAME/, src/NAME/ or python/NAME/.
_CHECKOUT = re.compile(
    r"(?i)^.*/(?:(?P<name>vllm|deepspeed|trl|torchtitan|ray|lmdeploy)[\w.-]*/(?=(?P=name)/)"
    r"|(?:src|python)/(?=(?:transformers|accelerate|peft|trl|datasets|diffusers|huggingface_hub|sglang|ray|colossalai)/))"
)
_STANDARD_LIBRARY = re.compile(r"^<|/lib/python3\.\d+/(?!site-packages/|dist-packages/)")


@dataclass(frozen=True)
class Frame:
    """One call of a traceback; a package's path begins with its name."""

    path: str
    number: int
    function: str

    @property
    def in_standard_library(self) -> bool:
        """Whether the file belongs to the standard library."""
        return bool(_STANDARD_LIBRARY.search(self.path))

    def __str__(self) -> str:
        return f"{self.path}, line {self.number}, in {self.function}"


def root_exception(text: bytes, at: int) -> tuple[int, bytes] | None:
    """Return offset and line of the exception of the traceback whose head is at ``at``.

    None for one without a cause: it was ignored, is a reaction to the end of another process, or is truncated.
    """
    return None if _follows_ignored(text, at) else _exception(text, at)


def is_ignored(text: bytes, at: int, most: int) -> bool:
    """Return whether the line at ``at`` is an exception that Python ignored, as in a finalizer or at the end.

    :param most: bytes before it in which its traceback may begin.
    """
    head = text.rfind(HEADS[0], max(at - most, 0), at)
    return head >= 0 and _follows_ignored(text, head) and (_exception(text, head) or (-1,))[0] == at


def _follows_ignored(text: bytes, at: int) -> bool:
    """Return whether the line before that of ``at`` says that the exception is ignored."""
    begin = text.rfind(b"\n", 0, at) + 1
    before = text[text.rfind(b"\n", 0, max(begin - 1, 0)) + 1 : begin]
    return any(marker in before for marker in _IGNORED)


def _exception(text: bytes, at: int) -> tuple[int, bytes] | None:
    """Return what root_exception does, also of an ignored exception."""
    begin = text.rfind(b"\n", 0, at) + 1
    first = lines.without_prefix(text[begin : _end(text, begin)])
    after_call = first.startswith(b'File "')  # without indentation the line after a call is its code
    compiler: tuple[int, bytes] | None = None
    for count, (position, line, message) in enumerate(_lines_of_process(text, begin, at)):
        if _is_head(message) or (not count and _CLEANUP.search(message)):
            return None
        is_call = lines.without_prefix(line).startswith(b'File "')
        is_code, after_call = after_call and not is_call, is_call
        compiler = (position, line) if message.endswith(b" raised:") else compiler
        if not is_inside(message) and not is_code:
            if not _REACTION.match(message):
                return position, line
            if _CHAINED not in text[position : position + len(line) + _CHAINED_BYTES]:
                return compiler
    return None


def _lines_of_process(text: bytes, begin: int, at: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield offset, line and message of the lines that the process wrote after the one at ``begin``.

    The messages are without the indentation of the traceback's head at ``at``.
    """
    first = text[begin : _end(text, begin)]
    writer, indent = lines.writer(first), max(at - begin - len(first) + len(lines.without_prefix(first)), 0)
    position = begin + len(first) + 1
    for _ in range(_MAX_LINES):
        if position >= len(text):
            return
        line = text[position : _end(text, position)]
        if lines.writer(line) == writer and not _LAUNCHERS.match(line):
            message = lines.without_prefix(line)
            yield position, line, message[indent:] if message[:indent].isspace() else message
        position += len(line) + 1


def first_call_without_head(text: bytes) -> int:
    """Return the offset of the first call if the text begins within a traceback, else -1."""
    at = text.find(b'File "')
    before = text[: max(at, 0)].splitlines()
    begins_inside = at >= 0 and all(_INSIDE.match(lines.without_prefix(line)) for line in before)
    return at if begins_inside else -1


def ending_with(text: bytes, exception: bytes) -> list[str]:
    """Return the traceback at the end of ``text`` that belongs to an exception."""
    writer = lines.writer(exception)
    found: list[str] = []
    near = text.splitlines()[-_MAX_LINES:]
    of_process = [line for line in near if lines.writer(line) == writer and not _LAUNCHERS.match(line)]
    for line, previous in zip(of_process[::-1], [*of_process[-2::-1], b""]):
        message = lines.without_prefix(line)
        is_code = lines.without_prefix(previous).startswith(b'File "')  # also without indentation
        inside = is_inside(message) or is_code
        if inside or _is_head(message):
            found.insert(0, message.decode("utf-8", "replace"))
        if not inside:
            break
    return found


def full_message(exception: bytes, after: bytes) -> bytes:
    """Return an exception's line joined with the indented lines after it."""
    writer, parts = lines.writer(exception), [exception.rstrip()]
    for line in after.splitlines()[:_MAX_MESSAGE_LINES]:
        message = lines.without_prefix(line)
        if lines.writer(line) != writer or not message[:1].isspace() or message.lstrip().startswith(b'File "'):
            break
        parts.append(message.strip())
    return b" ".join(parts)


def calls_after(text: bytes) -> list[str]:
    """Return the calls right after a line, the innermost last, as after a native crash."""
    found: list[str] = []
    for line in text.splitlines():
        message = lines.without_prefix(line).decode("utf-8", "replace")
        if _FRAME.match(message):
            found.append(message)
        elif message.strip() and not message.startswith((" ", "Current thread", "Thread ", "Stack (most recent")):
            break
    return found if any(", in " in call for call in found) else found[::-1]


def frames(traceback: Sequence[str]) -> list[Frame]:
    """Return the calls of a traceback, the innermost last."""
    found = [match for match in map(_FRAME.match, traceback) if match]
    return [Frame(_packaged(call["path"]), int(call["number"]), call["function"] or "?") for call in found]


def _packaged(path: str) -> str:
    relative = _PACKAGES.sub("", path)
    return _CHECKOUT.sub("", relative) if relative.startswith("/") else relative


def code(traceback: Sequence[str]) -> str:
    """Return the innermost call's line of code, empty if the log does not have it."""
    last = next((line.strip() for line in reversed(traceback) if line.strip(" ~^|")), "")
    return "" if _FRAME.match(last) or _FRAME.match(f"  {last}") else last


def is_inside(message: bytes) -> bool:
    """Return whether a message is inside a traceback, or wraps another exception."""
    return bool(_INSIDE.match(message) or _WRAPPER.match(message))


def is_exception(message: bytes) -> bool:
    """Return whether a line without its prefix is an exception."""
    return bool(_EXCEPTION.match(message))


def is_root(message: bytes) -> bool:
    """Return whether an exception is no wrapper of, or reaction to, another failure."""
    return not _WRAPPER.match(message) and not _REACTION.match(message)


def _is_head(message: bytes) -> bool:
    return message.startswith((*HEADS, b"Original " + HEADS[0], b"traceback: " + HEADS[0]))


def _end(text: bytes, position: int) -> int:
    end = text.find(b"\n", position)
    return len(text) if end < 0 else end
