"""Runs one build by docker or buildah, and writes its report and provenance record."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from images.catalog.variant import Variant
from images.context import context, labels
from images.context import inputs as context_inputs
from images.engine import buildah
from images.engine.client import Engine
from images.engine.daemon import Inspected, get
from images.host.process import Commands
from images.report import record, report, store, text
from images.report.build_log import BuildahLog, BuildLog
from images.report.progress import Progress

Build = Callable[[Callable[[str], None]], None]  # a builder, which hands on each line that it says


@dataclass(frozen=True)
class BuildRun:
    """A build whose context is staged in ``folder``; ``builder`` tells by what it is made, ``facts`` are its labels.

    ``told`` is what staging knows of the folder's content; without it the folder is looked through.
    """

    variant: Variant
    engine: Engine
    reference: str
    base: Inspected
    tags: Sequence[str]
    folder: Path
    facts: Mapping[str, str]
    builder: str
    told: Mapping[str, str | None] = field(default_factory=dict)

    @cached_property
    def inputs(self) -> dict[str, str]:
        """Everything that decides what is made."""
        known = context.staged_digests(self.folder)
        found = context_inputs.inputs(self.folder, self.base.id, self.builder, self.facts, known, told=self.told)
        known.keep()
        return found

    @cached_property
    def key(self) -> str:
        """One digest over the inputs."""
        return context_inputs.key(self.inputs)

    @cached_property
    def dockerfile(self) -> str:
        return (self.folder / "Dockerfile").read_text(encoding="utf-8")

    def by_docker(self, words: Sequence[str], progress: Progress, running: Commands) -> str:
        """Build with BuildKit and return the image's ID; ``words`` are what a site hands over."""
        given = labels.flags({**self.facts, context_inputs.LABEL: self.key})
        argv = self.argv([*words, *given])
        build = lambda each: running.watch(argv, self.engine.environment, each)  # noqa: E731
        return self._made(build, BuildLog(), progress, by=str(self.engine))

    def argv(self, words: Sequence[str]) -> list[str]:
        """The command of a build by docker."""
        flags = [word for name in self.tags for word in ("--tag", name)]
        flags += ["--progress", "plain", "--build-arg", f"BASE={self.reference}"]
        return self.engine.build_argv([*flags, *words, str(self.folder)])

    def by_buildah(self, words: Sequence[str], progress: Progress, running: Commands) -> str:
        """Build with buildah, so that the same inputs give the same bytes, and return the image's ID."""
        given = [*labels.flags(self.facts), *words, str(self.folder)]

        def build(each: Callable[[str], None]) -> None:
            watch = partial(running.watch, env={}, each=each)
            buildah.build(given, self.reference, self.tags, watch=watch)

        log, version = BuildahLog(self.dockerfile), buildah.version()
        return self._made(build, log, progress, by=self.builder, buildah=version)

    def _made(self, build: Build, log: BuildLog, progress: Progress, **by: str) -> str:
        """Have it built, then leave what tells that this image is made of these inputs, the report and the record."""

        def each(line: str) -> None:
            log.feed(line)
            progress.line(self.tags[0], line, log)

        with ThreadPoolExecutor(1) as beside:
            records = beside.submit(BuildRecords, self, **by)
            build(each)
        image = get(self.tags[0])
        context_inputs.keep(self.key, image.id)
        progress.end(self.tags[0], records.result().leave(image, log))
        return image.id


class BuildRecords:
    """Report and record of a build, prepared while the engine builds."""

    def __init__(self, making: BuildRun, *, by: str, buildah: str = "") -> None:
        self._making, self._by, self._buildah = making, by, buildah
        self._started, self._begun_s = record.now(), time.monotonic()
        text.template()
        self._inputs = json.dumps(making.inputs)
        self._last, self._base_history = store.read(making.tags[0]), making.base.history()
        self._made_of = record.dependencies(making.variant, making.reference, making.base, making.folder, making.inputs)

    def leave(self, image: Inspected, log: BuildLog) -> str:
        """Write report and record of the image that was just built, and return the report's short form."""
        making = self._making
        made = report.make(
            making.tags[0],
            image,
            making.base,
            log,
            last=self._last,
            base_history=self._base_history,
            engine=self._by,
            ended=record.now(),
            seconds=time.monotonic() - self._begun_s,
            dockerfile=making.dockerfile,
            inputs=making.inputs,
        )
        if not record.read(str(image.id)):
            facts: dict[str, Any] = {"started": self._started, "buildah": self._buildah}
            stated = record.predicate(
                making.variant, making.engine, making.reference, making.folder, self._made_of, **facts
            )
            record.write(str(image.id), stated)
        return f"{text.summary(made)}\n  report {store.write(made, inputs=self._inputs)}"
