"""Runs a build plan with docker or buildah, and writes the report and the provenance record."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from images.context import inputs
from images.context.plan import BuildPlan
from images.engine.daemon import get
from images.host.process import Commands
from images.report import record, report, store
from images.report.build_log import BuildahLog, BuildLog
from images.report.progress import Progress
from images.report.report import BuildResult


def run(plan: BuildPlan, site_flags: Sequence[str], progress: Progress, commands: Commands) -> BuildResult:
    """Build, and record the image of the inputs; report and record are prepared meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        records = pool.submit(BuildRecords, plan)
        result = _build(plan, site_flags, progress, commands)
    progress.end(plan.tags[0], records.result().write(result))
    return result


def _build(plan: BuildPlan, site_flags: Sequence[str], progress: Progress, commands: Commands) -> BuildResult:
    started_s = time.monotonic()
    log = BuildahLog(plan.context.dockerfile) if plan.buildah else BuildLog()

    def on_line(line: str) -> None:
        log.feed(line)
        progress.line(plan.tags[0], line, log)

    if plan.buildah:
        watch = partial(commands.watch, env={}, on_line=on_line)
        plan.buildah.build(plan.buildah_arguments(site_flags), plan.reference, plan.base.id, plan.tags, watch)
    else:
        commands.watch(plan.docker_argv(site_flags), plan.engine.environment, on_line)
    image = get(plan.tags[0])
    inputs.record_built(plan.key, image.id)
    return BuildResult(image, log, time.monotonic() - started_s)


class BuildRecords:
    """Report and provenance record of a build, with everything that is known before the image exists."""

    def __init__(self, plan: BuildPlan) -> None:
        self._plan, self._started = plan, record.now()
        store.template()  # compiled while the build runs
        self._inputs_json = json.dumps(dict(plan.inputs))
        self._last, self._base_history = store.read(plan.tags[0]), plan.base.history()
        self._dependencies = record.dependencies(plan)

    def write(self, result: BuildResult) -> str:
        """Write both for the new image, and return the summary of the report."""
        made = report.make(self._plan, result, last=self._last, base_history=self._base_history, ended=record.now())
        record.write(result.image.id, record.predicate(self._plan, self._dependencies, self._started))
        return f"{store.summary(made)}\n  report {store.write(made, inputs=self._inputs_json)}"
