"""What a Dockerfile's instructions read of their context."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.context.dockerfile import final_stage, parse, parse_steps, steps
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
    # said in between
 && echo two

FROM ${BASE}
ENV A=1 B="two words" \
    C="say \"so\""
COPY some/ /where/
CMD ["node"]
"""


def test_continued_lines_are_one_step_and_comments_none() -> None:
    told = parse_steps(WORDS)

    assert [step.name for step in told] == ["ARG", "ARG", "FROM", "RUN", "FROM", "ENV", "COPY", "CMD"]
    assert " ".join(told[3].text.split()) == "echo one && echo two"
    assert told[3].mounts == [{"type": "cache", "target": "/c"}, {"type": "secret", "id": "pip"}]
    assert " ".join(told[5].text.split()) == 'A=1 B="two words" C="say \\"so\\""'
    assert told[7].words == ["node"]


def test_a_step_that_says_nothing_is_an_error() -> None:
    with pytest.raises(ImageError, match="says nothing: 'RUN'"):
        parse_steps("RUN")


def test_instructions_are_joined_and_belong_to_their_stage() -> None:
    found = parse(TEXT)

    assert [(each.stage, each.text) for each in found[:4]] == [
        ("", "ARG BASE=debian"),
        ("one", "FROM ${BASE} AS one"),
        ("one", "RUN echo a && echo b"),
        ("stage-1", "FROM ${BASE}"),
    ]
    assert final_stage(found) == "stage-1"


def test_what_a_step_reads_are_the_contexts_paths_and_other_stages() -> None:
    _, copy, add, run, everything = steps(parse(TEXT), "stage-1")

    assert (copy.sources, copy.stages) == (("steps", "lock.txt"), ())
    assert (add.sources, add.stages) == ((), ("one",))
    assert (run.sources, run.stages) == (("steps",), ("one",))
    assert (run.reads("steps/guard.py"), run.reads("steps"), run.reads("steps2/guard.py")) == (True, True, False)
    assert everything.reads("whatever")


@pytest.mark.parametrize("path", sorted(RENDERED.glob("*.Dockerfile")), ids=lambda path: path.stem)
def test_a_rendered_dockerfile_is_read_whole(path: Path) -> None:
    found = parse(path.read_text())
    known = {"ARG", "FROM", "RUN", "COPY", "ENV", "LABEL", "ENTRYPOINT", "CMD", "USER", "WORKDIR", "SHELL"}

    assert {each.text.split()[0] for each in found} <= known
    staged = {"steps", "steps/apt.sh", "apt.txt", "lock.txt", "verl.txt", "wheelhouse", "debs", "git", "toolkit"}
    assert {source for each in found for source in each.sources} <= staged
