"""One build under way: by docker or by buildah, watched line by line, and what it leaves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from docker.models.images import Image

from images import context, freshness, labels, record, report, report_files, report_text, reproducible
from images.buildlog import BuildahLog, BuildLog
from images.engine import Engine, daemon
from images.progress import Progress
from images.running import Running
from images.spec import ImageSpec


@dataclass(frozen=True)
class Making:
    """A build whose context is staged in ``folder``; ``builder`` tells by what it is made, ``facts`` are its labels."""

    spec: ImageSpec
    engine: Engine
    reference: str
    base: Image
    tags: Sequence[str]
    folder: Path
    facts: Mapping[str, str]
    builder: str

    @cached_property
    def inputs(self) -> dict[str, str]:
        """Everything that decides what is made."""
        known = context.staged_digests(self.folder)
        found = freshness.inputs(self.folder, str(self.base.id), self.builder, self.facts, known)
        known.keep()
        return found

    @cached_property
    def key(self) -> str:
        """One digest over the inputs."""
        return freshness.key(self.inputs)

    @cached_property
    def dockerfile(self) -> str:
        return (self.folder / "Dockerfile").read_text(encoding="utf-8")

    def by_docker(self, words: Sequence[str], progress: Progress, running: Running) -> str:
        """Build with BuildKit and return the image's ID; ``words`` are what a site hands over."""
        given = labels.flags({**self.facts, freshness.LABEL: self.key})
        argv = self.argv([*words, *given])
        build = lambda each: running.watch(argv, self.engine.environment, each)  # noqa: E731
        return self._made(build, BuildLog(), str(self.engine), progress)

    def argv(self, words: Sequence[str]) -> list[str]:
        """The command of a build by docker."""
        flags = [word for name in self.tags for word in ("--tag", name)]
        flags += ["--progress", "plain", "--build-arg", f"BASE={self.reference}"]
        return self.engine.build_argv([*flags, *words, str(self.folder)])

    def by_buildah(self, words: Sequence[str], progress: Progress, running: Running) -> str:
        """Build with buildah, so that the same inputs give the same bytes, and return the image's ID."""
        given = [*labels.flags(self.facts), *words, str(self.folder)]

        def build(each: Callable[[str], None]) -> None:
            watch = partial(running.watch, env={}, each=each)
            reproducible.build(given, self.reference, self.tags, watch=watch)

        return self._made(build, BuildahLog(self.dockerfile), self.builder, progress, buildah=reproducible.version())

    def _made(
        self,
        build: Callable[[Callable[[str], None]], None],
        log: BuildLog,
        by: str,
        progress: Progress,
        *,
        buildah: str = "",
    ) -> str:
        """Have it built, then leave what tells that this image is made of these inputs, the report and the record."""
        started, begun = record.now(), time.monotonic()

        def each(line: str) -> None:
            log.feed(line)
            progress.line(self.tags[0], line, log)

        with ThreadPoolExecutor(1) as beside:
            known = beside.submit(self._known)
            build(each)
        image = daemon().images.get(self.tags[0])
        freshness.keep(self.key, str(image.id))
        made_of, told = known.result()
        told |= {"engine": by, "ended": record.now(), "seconds": time.monotonic() - begun}
        made = report.make(self.tags[0], image, self.base, log, dockerfile=self.dockerfile, inputs=self.inputs, **told)
        progress.end(self.tags[0], f"{report_text.summary(made)}\n  report {report_files.write(made)}")
        if not record.read(str(image.id)):
            facts = {"started": started, "buildah": buildah}
            stated = record.predicate(self.spec, self.engine, self.reference, self.folder, made_of, **facts)
            record.write(str(image.id), stated)
        return str(image.id)

    def _known(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """For record and report what can be known before there is an image: the engine's time is used for it."""
        report_text.template()
        told = {"last": report_files.read(self.tags[0]), "base_history": self.base.history()}
        return record.dependencies(self.spec, self.reference, self.base, self.folder, self.inputs), told
