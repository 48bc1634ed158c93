"""Runs a build plan by docker or buildah, and writes report and provenance record."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from images.builds.plan import BuildPlan
from images.context import inputs as context_inputs
from images.engine import buildah
from images.engine.daemon import Inspected, get
from images.host.process import Commands
from images.report import record, report, store, text
from images.report.build_log import BuildahLog, BuildLog
from images.report.progress import Progress


@dataclass(frozen=True)
class BuildResult:
    """A finished build: its image, its log, and the seconds that it took."""

    image: Inspected
    log: BuildLog
    seconds: float


def run(plan: BuildPlan, site_words: Sequence[str], progress: Progress, commands: Commands) -> BuildResult:
    """Build, and remember which image the inputs made; report and record are prepared meanwhile."""
    with ThreadPoolExecutor(1) as beside:
        records = beside.submit(BuildRecords, plan)
        result = _built(plan, site_words, progress, commands)
    progress.end(plan.tags[0], records.result().write(result))
    return result


def _built(plan: BuildPlan, site_words: Sequence[str], progress: Progress, commands: Commands) -> BuildResult:
    begun_s = time.monotonic()
    log = BuildahLog(plan.dockerfile) if plan.buildah else BuildLog()

    def each(line: str) -> None:
        log.feed(line)
        progress.line(plan.tags[0], line, log)

    if plan.buildah:
        watch = partial(commands.watch, env={}, each=each)
        buildah.build(plan.buildah_words(site_words), plan.reference, plan.tags, watch=watch)
    else:
        commands.watch(plan.docker_argv(site_words), plan.engine.environment, each)
    image = get(plan.tags[0])
    context_inputs.keep(plan.key, image.id)
    return BuildResult(image, log, time.monotonic() - begun_s)


class BuildRecords:
    """Report and provenance record of a build, with all that is known before there is an image."""

    def __init__(self, plan: BuildPlan) -> None:
        self._plan, self._started = plan, record.now()
        text.template()
        self._inputs = json.dumps(dict(plan.inputs))
        self._last, self._base_history = store.read(plan.tags[0]), plan.base.history()
        self._made_of = record.dependencies(plan.variant, plan.reference, plan.base, plan.folder, plan.inputs)

    def write(self, result: BuildResult) -> str:
        """Write both of the image that was just built, and return the report's short form."""
        plan = self._plan
        made = report.make(
            plan.tags[0],
            result.image,
            plan.base,
            result.log,
            last=self._last,
            base_history=self._base_history,
            engine=plan.builder if plan.buildah else str(plan.engine),
            ended=record.now(),
            seconds=result.seconds,
            dockerfile=plan.dockerfile,
            inputs=plan.inputs,
        )
        image_id = str(result.image.id)
        if not record.read(image_id):
            facts: dict[str, Any] = {"started": self._started, "buildah": plan.buildah}
            stated = record.predicate(plan.variant, plan.engine, plan.reference, plan.folder, self._made_of, **facts)
            record.write(image_id, stated)
        return f"{text.summary(made)}\n  report {store.write(made, inputs=self._inputs)}"
