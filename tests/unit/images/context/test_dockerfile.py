"""Instructions of a Dockerfile, and the paths of the context that they read."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.context.dockerfile import final_stage, parse, steps
from images.context.render import RENDERED
from images.errors import ImageError

TEXT = """\
# a comment
ARG BASE=debian
FROM ${BASE} AS one
RUN echo a \\
# a comment between
 && echo b
FROM ${BASE}
ENV A=1
COPY --chown=1:1 steps/ lock.txt /there/
ADD --from=one wheels/ /wheels
RUN --mount=type=cache,target=/root/.cache --mount=type=bind,source=steps,target=/steps \\
    --mount=type=bind,from=one,source=/src,target=/src --mount=type=secret,id=ca true
RUN --mount=target=/all true
"""
WORDS = r"""# a comment
ARG BASE=debian:12
ARG UNUSED=1
FROM ${BASE} AS first
RUN --mount=type=cache,target=/c --mount=type=secret,id=pip \
    echo one \
    # a comment in between
 && echo two

FROM ${BASE}
ENV A=1 B="two words" \
    C="say \"so\""
COPY some/ /where/
CMD ["node"]
"""


def test_continued_lines_are_one_instruction_without_comments() -> None:
    found = parse(WORDS)

    assert [each.name for each in found] == ["ARG", "ARG", "FROM", "RUN", "FROM", "ENV", "COPY", "CMD"]
    assert " ".join(found[3].arguments.split()) == "echo one && echo two"
    assert found[3].mounts == [{"type": "cache", "target": "/c"}, {"type": "secret", "id": "pip"}]
    assert " ".join(found[5].arguments.split()) == 'A=1 B="two words" C="say \\"so\\""'
    assert found[7].words == ["node"]


def test_an_instruction_without_arguments_is_an_error() -> None:
    with pytest.raises(ImageError, match="has no arguments: 'RUN'"):
        parse("RUN")


def test_instructions_are_one_line_and_have_their_stage() -> None:
    found = parse(TEXT)

    assert [(each.stage, each.text) for each in found[:4]] == [
        ("", "ARG BASE=debian"),
        ("one", "FROM ${BASE} AS one"),
        ("one", "RUN echo a && echo b"),
        ("stage-1", "FROM ${BASE}"),
    ]
    assert final_stage(found) == "stage-1"


def test_a_step_reads_paths_of_the_context_and_other_stages() -> None:
    _, copy, add, run, everything = steps(parse(TEXT), "stage-1")

    assert (copy.sources, copy.stages) == (("steps", "lock.txt"), ())
    assert (add.sources, add.stages) == ((), ("one",))
    assert (run.sources, run.stages) == (("steps",), ("one",))
    assert (run.reads("steps/guard.py"), run.reads("steps"), run.reads("steps2/guard.py")) == (True, True, False)
    assert everything.reads("whatever")


@pytest.mark.parametrize("path", sorted(RENDERED.glob("*.Dockerfile")), ids=lambda path: path.stem)
def test_every_instruction_of_a_rendered_dockerfile_is_parsed(path: Path) -> None:
    found = parse(path.read_text())
    known = {"ARG", "FROM", "RUN", "COPY", "ENV", "LABEL", "ENTRYPOINT", "CMD", "USER", "WORKDIR", "SHELL"}

    assert {each.text.split()[0] for each in found} <= known
    staged = {
        "steps",
        "steps/apt.sh",
        "apt.txt",
        "lock.txt",
        "verl.txt",
        "torch.txt",
        "engine.txt",
        "wheelhouse",
        "debs",
        "git",
        "toolkit",
    }
    assert {source for each in found for source in each.sources} <= staged
