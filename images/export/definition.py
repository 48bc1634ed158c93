"""An Apptainer definition that does what a Dockerfile does, step by step.

A definition has no steps: %files comes before %post, which is one script. So the whole build context is copied in, and
each step of the Dockerfile is a line of %post that runs it with the context's parts where the step wants them mounted.
A site's own settings (--mount=type=secret) are looked for in /run/secrets: `apptainer build --bind DIR:/run/secrets`,
with DIR's whole path. A bind needs its place made from the host, by %setup; what DIR lacks is made empty, then removed.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping

from images.context.steps import Stage, Step, stages
from images.errors import ImageError

CONTEXT = "/.verljob/context"  # in the image while it is built
STAGES = "/.verljob/stages"
SHELL = ("/bin/sh", "-c")


def definition(dockerfile: str, arguments: Mapping[str, str], context: str = "context") -> str:
    """The definition's text; ``context`` is the folder beside it that has the build's context."""
    built = stages(dockerfile, arguments)
    return "\n".join(line for stage in built for line in [*_stage(stage, built, context), ""])


def _stage(stage: Stage, built: list[Stage], context: str) -> Iterator[str]:
    yield from ("Bootstrap: docker", f"From: {stage.base}")
    if len(built) > 1:
        yield f"Stage: {stage.name or 'final'}"
    secrets = _secrets(stage)
    if secrets:
        yield from ("", "%setup", '    mkdir -p "${APPTAINER_ROOTFS}/run/secrets"')
    yield from ("", "%files", f"    {context} {CONTEXT}")
    for source in built:
        if paths := _taken(stage, source.name):
            yield from ("", f"%files from {source.name}")
            yield from (f"    {path} {STAGES}/{source.name}{path}" for path in paths)
    yield from ("", "%post", '    absent=""')
    yield from (f'    [ -e {path} ] || {{ : > {path}; absent="$absent {path}"; }}' for path in secrets)
    shell: tuple[str, ...] = SHELL
    for step in stage.steps:
        if step.name == "SHELL":
            shell = tuple(step.words)
        yield from (f"    {line}" for line in _post(step, shell))
    yield from ("    rm -rf /.verljob", "    rm -f $absent")
    if stage is built[-1]:
        yield from _configuration(stage)


def _taken(stage: Stage, source: str) -> list[str]:
    """The paths that a stage's steps mount from another one."""
    mounts = [mount for step in stage.steps for mount in step.mounts]
    return [mount["source"] for mount in mounts if source and mount.get("from") == source]


def _secrets(stage: Stage) -> list[str]:
    mounts = (mount for step in stage.steps for mount in step.mounts)
    return sorted({f"/run/secrets/{mount['id']}" for mount in mounts if mount["type"] == "secret"})


def _post(step: Step, shell: tuple[str, ...]) -> list[str]:
    """The lines of %post that do a step; those of the configuration alone do nothing there."""
    if step.name in ("LABEL", "ENTRYPOINT", "CMD", "SHELL"):
        return []
    ways: dict[str, Callable[[], list[str]]] = {
        "RUN": lambda: _run(step, shell),
        "COPY": lambda: _copy(step),
        "ENV": lambda: _exports(step),
        "ARG": lambda: _exports(step),
        "WORKDIR": lambda: [f"mkdir -p {step.text}", f"cd {step.text}"],
        "USER": lambda: _user(step),
    }
    if step.name not in ways:
        raise ImageError(f"a definition has nothing for {step.name}: say in images/export/definition.py how it is done")
    return ways[step.name]()


def _run(step: Step, shell: tuple[str, ...]) -> list[str]:
    before, after = [], []
    for mount in step.mounts:
        if mount["type"] == "bind":
            target = mount["target"]
            source = f"{STAGES}/{mount['from']}{mount['source']}" if "from" in mount else f"{CONTEXT}/{mount['source']}"
            before.append(f"mkdir -p {shlex.quote(target.rpartition('/')[0] or '/')} && ln -s {source} {target}")
            after.append(f"rm {target}")
        elif mount["type"] == "cache":
            after.append(f"rm -rf {mount['target']}")
    return [*before, shlex.join([*shell, step.text]), *after]


def _copy(step: Step) -> list[str]:
    if step.flags:
        raise ImageError(
            f"a definition has nothing for COPY {' '.join(step.flags)}: say in images/export/definition.py how"
        )
    *sources, target = step.words
    into = [f"{CONTEXT}/{source}." if source.endswith("/") else f"{CONTEXT}/{source}" for source in sources]
    return [
        f"mkdir -p {target if target.endswith('/') else target.rpartition('/')[0] or '/'}",
        shlex.join(["cp", "-a", *into, target]),
    ]


def _exports(step: Step) -> list[str]:
    return [f'export {name}="{value}"' for name, value in step.pairs.items()]


def _user(step: Step) -> list[str]:
    if step.text not in ("0", "root"):
        raise ImageError(f"a definition's %post runs as root, not as {step.text}: no USER but 0 can be translated")
    return []


def _configuration(stage: Stage) -> Iterator[str]:
    """What the image says of itself: %environment, %labels and %runscript."""
    said = {name: [step for step in stage.steps if step.name == name] for name in ("ENV", "LABEL", "ENTRYPOINT", "CMD")}
    yield from ("", "%environment")
    yield from (f"    {line}" for step in said["ENV"] for line in _exports(step))
    yield from ("", "%labels")
    yield from (f"    {name} {value}" for step in said["LABEL"] for name, value in step.pairs.items())
    entrypoint, command = (said[name][-1].words if said[name] else [] for name in ("ENTRYPOINT", "CMD"))
    yield from ("", "%runscript", f"    [ $# -gt 0 ] || set -- {shlex.join(command)}")
    yield f'    exec {shlex.join(entrypoint)} "$@"'
