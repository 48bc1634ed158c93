"""A Dockerfile is read as its builder reads it, and an Apptainer definition and a bake file say the same steps."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from images.catalog.catalog import Catalog
from images.context import render, steps
from images.context.steps import Step
from images.errors import ImageError
from images.export.bake import bake
from images.export.definition import definition

CATALOG = Catalog.read()
TEXT = r"""# a comment
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
    told = steps.parse(TEXT)

    assert [step.name for step in told] == ["ARG", "ARG", "FROM", "RUN", "FROM", "ENV", "COPY", "CMD"]
    assert " ".join(told[3].text.split()) == "echo one && echo two"
    assert told[3].mounts == [{"type": "cache", "target": "/c"}, {"type": "secret", "id": "pip"}]
    assert told[5].pairs == {"A": "1", "B": "two words", "C": 'say "so"'}
    assert told[7].words == ["node"]


def test_a_stage_has_its_base_its_name_and_its_own_steps() -> None:
    first, last = steps.stages(TEXT, {"BASE": "mirror/debian:12"})

    assert (first.base, first.name, len(first.steps)) == ("mirror/debian:12", "first", 1)
    assert (last.base, last.name, len(last.steps)) == ("mirror/debian:12", "", 3)


def test_a_step_that_says_nothing_is_an_error() -> None:
    with pytest.raises(ImageError, match="says nothing: 'RUN'"):
        steps.parse("RUN")


def sections(text: str) -> list[dict[str, list[str]]]:
    """An Apptainer definition's stages: their headers under an empty name, and each section's lines."""
    found: list[dict[str, list[str]]] = []
    for part in re.split(r"(?m)^(?=Bootstrap: )", text)[1:]:
        head, *rest = re.split(r"(?m)^%", part)
        found.append({"": head.split("\n"), **{each.split("\n")[0]: each.split("\n")[1:] for each in rest}})
    return [{name: [line.strip() for line in lines if line.strip()] for name, lines in each.items()} for each in found]


def said_by(stage: dict[str, list[str]]) -> list[tuple[str, str]]:
    """What a definition's stage does, as the names and texts of a Dockerfile's steps."""
    told: list[tuple[str, str]] = []
    for line in stage["post"]:
        words = shlex.split(line)
        if words[:2] == ["/bin/sh", "-c"]:
            told.append(("RUN", words[2]))
        elif words[0] == "export":
            told.append(("set", words[1]))
        elif words[:2] == ["cp", "-a"]:
            told.append(("COPY", f"{words[2].removeprefix('/.verljob/context/').removesuffix('.')} {words[3]}"))
        elif words[0] == "cd":
            told.append(("WORKDIR", words[1]))
    return told


def said_in(stage: steps.Stage) -> list[tuple[str, str]]:
    """The same of a Dockerfile's stage."""
    told: list[tuple[str, str]] = []
    for step in stage.steps:
        if step.name in ("RUN", "COPY", "WORKDIR"):
            told.append((step.name, step.text))
        elif step.name in ("ENV", "ARG"):
            told += [("set", f"{name}={value}") for name, value in step.pairs.items()]
    return told


@pytest.mark.parametrize("variant", CATALOG.variants)
def test_a_definition_says_every_step_of_the_dockerfile_in_its_order(variant: str) -> None:
    text = render.dockerfile(CATALOG.variants[variant])
    wanted = steps.stages(text, {"BASE": "mirror/base:1"})

    stages = sections(definition(text, {"BASE": "mirror/base:1"}))

    assert len(stages) == len(wanted)
    for stage, one in zip(stages, wanted):
        assert stage[""][:2] == ["Bootstrap: docker", "From: mirror/base:1"]
        assert said_by(stage) == said_in(one)
    last = wanted[-1]
    labels = {name: value for step in last.steps if step.name == "LABEL" for name, value in step.pairs.items()}
    environment = [f'export {n}="{v}"' for step in last.steps if step.name == "ENV" for n, v in step.pairs.items()]
    assert dict(line.split(" ", 1) for line in stages[-1]["labels"]) == labels
    assert stages[-1]["environment"] == environment
    assert stages[-1]["runscript"] == [
        "[ $# -gt 0 ] || set -- node",
        'exec /usr/bin/tini -g -- /opt/verljob/entrypoint.sh "$@"',
    ]


@pytest.mark.parametrize("variant", CATALOG.variants)
def test_what_a_step_has_mounted_is_there_for_that_step_alone(variant: str) -> None:
    text = render.dockerfile(CATALOG.variants[variant])

    for stage, one in zip(sections(definition(text, {})), steps.stages(text)):
        runs = [step for step in one.steps if step.name == "RUN"]
        script = "\n".join(stage["post"])
        pieces = re.split(r"(?m)^(?=mkdir -p [^\n]+ && ln -s|/bin/sh -c)", script)
        assert script.count("&& ln -s ") == sum(mount["type"] == "bind" for step in runs for mount in step.mounts)
        for target in (mount["target"] for step in runs for mount in step.mounts if mount["type"] == "bind"):
            assert script.index(f" {target}\n") < script.index(f"rm {target}\n")
        assert pieces
        checked = subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize(
    ("step", "told"),
    [("HEALTHCHECK CMD true", "nothing for HEALTHCHECK"), ("COPY --chmod=755 a /a", "--chmod"), ("USER 1", "not as 1")],
)
def test_what_a_definition_cannot_say_is_refused(step: str, told: str) -> None:
    with pytest.raises(ImageError, match=told):
        definition(f"FROM a\n{step}\n", {})


def test_a_definition_uses_the_secrets_that_are_there_and_leaves_no_others(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("told")
    mounts = " ".join(f"--mount=type=secret,id={name}" for name in ("there", "absent"))
    told = definition(f"FROM a\nRUN {mounts} cat {tmp_path}/there {tmp_path}/absent > {tmp_path}/read\n", {})
    (stage,) = sections(told)
    script = "\n".join(stage["post"]).replace("/run/secrets", str(tmp_path)).replace("rm -rf /.verljob", "")

    subprocess.run(["sh", "-e", "-c", script], check=True)

    assert stage["setup"] == ['mkdir -p "${APPTAINER_ROOTFS}/run/secrets"']
    assert sorted(path.name for path in tmp_path.iterdir()) == ["read", "there"]
    assert (tmp_path / "read").read_text() == "told"


def test_the_steps_of_a_definition_do_what_they_say(tmp_path: Path) -> None:
    """%post, run here with another place for the context: each step finds its mounts, and leaves none."""
    (tmp_path / "context/steps").mkdir(parents=True)
    (tmp_path / "context/steps/script").write_text("cat steps.d/script > ran\n")
    text = definition(
        f"FROM a\nWORKDIR {tmp_path}/work\nENV WORD=said\n"
        f"RUN --mount=type=bind,source=steps,target={tmp_path}/work/steps.d sh steps.d/script && echo $WORD >> ran\n"
        f"COPY steps/ {tmp_path}/copied/\n",
        {},
    )
    script = "\n".join(sections(text)[0]["post"]).replace("/.verljob", str(tmp_path)).replace(f"rm -rf {tmp_path}", "")

    subprocess.run(["sh", "-e", "-c", script], check=True)

    assert (tmp_path / "work/ran").read_text() == "cat steps.d/script > ran\nsaid\n"
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["ran"]
    assert (tmp_path / "copied/script").exists()


@pytest.mark.parametrize("variant", CATALOG.variants)
def test_a_bake_file_has_the_dockerfile_step_by_step_and_what_the_build_adds(variant: str) -> None:
    spec = CATALOG.variants[variant]
    text = render.dockerfile(spec)

    labels = {"verljob.base": "mirror/base:1"}
    written = bake(spec, text, "mirror/base:1", labels=labels, secrets=["apt", "pip"])
    assert not re.search(r"(?<![$])[$]{|(?<!%)%{", written), "bake takes it for a variable of its own"
    told = json.loads(written.replace("$${", "${").replace("%%{", "%{"))

    (name,) = told["group"]["default"]["targets"]
    target = told["target"][name]
    back: list[Step] = steps.parse(target["dockerfile-inline"])
    assert re.fullmatch(r"[\w-]+", name)
    assert back == steps.parse(text)
    assert target["args"] == {"BASE": "mirror/base:1"}
    assert target["tags"] == [f"{spec.name}:{spec.tag}"]
    assert target["labels"] == labels
    assert target["secret"] == ["id=apt,src=secrets/apt", "id=pip,src=secrets/pip"]
