"""Reads Python tracebacks from logs with interleaved processes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from verl_node.explain.logs import lines

BEGINS = (
    b"Traceback (most recent call last)",
    b"Unhandled error (suppress with",
    b"Exception raised in creation task: ",
    b"ray.exceptions.RayTaskError",
)
"""Python's; Ray's of what nobody fetched, of an actor that was not made, of one whose first lines are elsewhere."""
_MOST_LINES = 400
_MOST_WORDS = 4
"""Lines of an exception's own that are read on for what it says."""
# They carry another's exception, or are somebody's answer to another's end: never the root.
_CARRIES = re.compile(
    rb"^(?:ray\.exceptions\.)?RayTaskError\b|^(?:\w+\.)*RemoteTraceback:|^ray::|^The above exception was the direct"
    rb"|^(?:ray\.exceptions\.)?ActorDiedError: The actor died because of an error raised in its creation"
    rb"|^\w+: Caught \w+ in \w+ (?:worker process|\d)"
    rb"|^(?:[\w.]+\.)?ProcessRaisedException:|^-- Process \d+ terminated with"
    rb"|^(?:ray\.exceptions\.)?RaySystemError: System error: Failed to unpickle|^torch\._dynamo\.exc\.\w+: .* raised:$"
)
_CHAINED = b"The above exception was the direct cause"
_CHAINED_BYTES = 200
_ANSWERS = re.compile(
    rb"^(?:[\w.]*\.)?(?:ChildFailedError|SystemExit|KeyboardInterrupt|CancelledError|BrokenPipeError"
    rb"|CalledProcessError(?!: Command .{0,3}[^\s']*(?:ptxas|nvcc|ninja)\b)"
    rb"|ConnectionResetError|ConnectionAbortedError|EOFError|BrokenProcessPool|ProcessExitedException|SignalException)\b"
)
_QUIET = (b"Exception ignored in", b"exception ignored in")
_RAISED = re.compile(rb"(?:[A-Za-z_]\w{0,80}\.){0,9}(?:_{0,2}[A-Z]\w{0,80})?(?:Error|Exception)\b")
# The first frame of what a process only meets while it tidies up.
_TIDIES = re.compile(rb"File \"[^\"]*(?:multiprocessing/resource_tracker\.py\"|\", line \d+, in __del__)")
# Rich draws a box around its own; a notebook's have an arrow at the line.
_INSIDE = re.compile(
    rb"^(?:\s|$|File \"|\^|~|\[repeated |\[Previous line repeated|\xe2\x94\x82|\xe2\x95\xad|\xe2\x95\xb0"
    rb"|-+> \d+ |\d+ frames$|/\S+ in \w+\(|(?:Cell|Input) In ?\[|File [/~])"
)
# A launcher's or a tracker's own line, which may stand in the midst of another's.
_LAUNCHERS = re.compile(rb"^(?:srun|slurmstepd[\w-]*|wandb|mpirun|prterun|pyxis): ")
_FRAME = re.compile(
    r"^(?: *File \"|\u2502 )(?P<path>[^\"\s][^\":]*)(?:\", line |:)(?P<number>\d+)(?:,? in (?P<function>\S+))?"
)
_PACKAGES = re.compile(r"^.*/(?:site|dist)-packages/")
# A library that runs from its checkout: NAME/NAME/, src/NAME/ or python/NAME/.
_CHECKOUT = re.compile(
    r"(?i)^.*/(?:(?P<name>vllm|deepspeed|trl|torchtitan|ray|lmdeploy)[\w.-]*/(?=(?P=name)/)"
    r"|(?:src|python)/(?=(?:transformers|accelerate|peft|trl|datasets|diffusers|huggingface_hub|sglang|ray|colossalai)/))"
)
_PYTHONS_OWN = re.compile(r"^<|/lib/python3\.\d+/(?!site-packages/|dist-packages/)")


@dataclass(frozen=True)
class Frame:
    """One call of a traceback; the path of a package, installed or a checkout, from its name on."""

    path: str
    number: int
    function: str

    @property
    def pythons_own(self) -> bool:
        """Whether it is the standard library's."""
        return bool(_PYTHONS_OWN.search(self.path))

    def __str__(self) -> str:
        return f"{self.path}, line {self.number}, in {self.function}"


def root(text: bytes, at: int) -> tuple[int, bytes] | None:
    """Return offset and line of the exception that the traceback at ``at`` ends with.

    None for one that names no cause: it was ignored, is the answer to another's end, or is cut off.
    """
    begin = text.rfind(b"\n", 0, at) + 1
    before = text[text.rfind(b"\n", 0, max(begin - 1, 0)) + 1 : begin]
    if any(word in before for word in _QUIET):
        return None
    first = lines.bare(text[begin : _end(text, begin)])
    called = first.startswith(b'File "')  # somebody took the indents off: what follows a call is its code
    compiler: tuple[int, bytes] | None = None
    for count, (position, line, words) in enumerate(_own(text, begin, at)):
        if _begins(words) or (not count and _TIDIES.search(words)):
            return None
        code, called = called, lines.bare(line).startswith(b'File "')
        compiler = (position, line) if words.endswith(b" raised:") else compiler
        if not _INSIDE.match(words) and not _CARRIES.match(words) and not (code and not called):
            if not _ANSWERS.match(words):
                return position, line
            if _CHAINED not in text[position : position + len(line) + _CHAINED_BYTES]:
                return compiler
    return None


def _own(text: bytes, begin: int, at: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Return offset, line and words of the lines that the process wrote after the one at ``begin``.

    The words are without what the traceback's head, which stands at ``at``, was indented by.
    """
    first = text[begin : _end(text, begin)]
    mine, indent = lines.writer(first), max(at - begin - len(first) + len(lines.bare(first)), 0)
    position = begin + len(first) + 1
    for _ in range(_MOST_LINES):
        if position >= len(text):
            return
        line = text[position : _end(text, position)]
        if lines.writer(line) == mine and not _LAUNCHERS.match(line):
            bare = lines.bare(line)
            yield position, line, bare[indent:] if bare[:indent].isspace() else bare
        position += len(line) + 1


def beheaded(text: bytes) -> int:
    """Return where the first call stands of a traceback in whose midst the text begins; -1 where it does not."""
    at = text.find(b'File "')
    before = text[: max(at, 0)].splitlines()
    inside = at >= 0 and all(_INSIDE.match(lines.bare(line)) for line in before)
    return at if inside else -1


def leading_to(text: bytes, exception: bytes) -> list[str]:
    """Return the lines of the traceback at the end of ``text`` that the line ``exception`` of its process closes."""
    mine = lines.writer(exception)
    found: list[str] = []
    near = text.splitlines()[-_MOST_LINES:]
    own = [line for line in near if lines.writer(line) == mine and not _LAUNCHERS.match(line)]
    for line, above in zip(own[::-1], [*own[-2::-1], b""]):
        words = lines.bare(line)
        code = lines.bare(above).startswith(b'File "')  # somebody took the indents off
        inside = _INSIDE.match(words) or _CARRIES.match(words) or code
        if inside or _begins(words):
            found.insert(0, words.decode("utf-8", "replace"))
        if not inside:
            break
    return found


def saying(exception: bytes, after: bytes) -> bytes:
    """Return an exception's line with the indented lines right after it, in which some say what is wrong."""
    mine, said = lines.writer(exception), [exception.rstrip()]
    for line in after.splitlines()[:_MOST_WORDS]:
        words = lines.bare(line)
        if lines.writer(line) != mine or not words[:1].isspace() or words.lstrip().startswith(b'File "'):
            break
        said.append(words.strip())
    return b" ".join(said)


def following(text: bytes) -> list[str]:
    """Return the calls right after a line, the innermost last; after a crash of native code they stand upside down."""
    found: list[str] = []
    for line in text.splitlines():
        words = lines.bare(line).decode("utf-8", "replace")
        if _FRAME.match(words):
            found.append(words)
        elif words.strip() and not words.startswith((" ", "Current thread", "Thread ", "Stack (most recent")):
            break
    return found if any(", in " in call for call in found) else found[::-1]


def frames(traceback: Sequence[str]) -> list[Frame]:
    """Return the calls of a traceback, the innermost last."""
    found = [match for match in map(_FRAME.match, traceback) if match]
    return [Frame(_packaged(call["path"]), int(call["number"]), call["function"] or "?") for call in found]


def _packaged(path: str) -> str:
    bare = _PACKAGES.sub("", path)
    return _CHECKOUT.sub("", bare) if bare.startswith("/") else bare


def code(traceback: Sequence[str]) -> str:
    """Return the innermost call's line of code, empty where the log has none."""
    last = next((line.strip() for line in reversed(traceback) if line.strip(" ~^|")), "")
    return "" if _FRAME.match(last) or _FRAME.match(f"  {last}") else last


def inside(words: bytes) -> bool:
    """Tell whether a line without its prefix may stand inside a traceback, or only carries another exception."""
    return bool(_INSIDE.match(words) or _CARRIES.match(words))


def raised(words: bytes) -> bool:
    """Tell whether a line without its prefix is an exception's."""
    return bool(_RAISED.match(words))


def _begins(words: bytes) -> bool:
    return words.startswith((*BEGINS, b"Original " + BEGINS[0], b"traceback: " + BEGINS[0]))


def tells(words: bytes) -> bool:
    """Tell whether an exception is more than the carrier of another, or somebody's answer to another's end."""
    return not _CARRIES.match(words) and not _ANSWERS.match(words)


def _end(text: bytes, position: int) -> int:
    end = text.find(b"\n", position)
    return len(text) if end < 0 else end
