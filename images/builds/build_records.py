"""What a build leaves beside its image: a report, and a record of what it was made of.

Both are prepared while the engine builds, which costs no time; this module is loaded then, too.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from images.report import record, report, store, text

if TYPE_CHECKING:
    from images.builds.builder import Making
    from images.engine.daemon import Inspected
    from images.report.build_log import BuildLog


class Traces:
    """Made when a build begins, with all that can be known before there is an image."""

    def __init__(self, making: Making, *, by: str, buildah: str = "") -> None:
        self._making, self._by, self._buildah = making, by, buildah
        self._started, self._begun_s = record.now(), time.monotonic()
        text.template()
        self._inputs = json.dumps(making.inputs)
        self._last, self._base_history = store.read(making.tags[0]), making.base.history()
        self._made_of = record.dependencies(making.spec, making.reference, making.base, making.folder, making.inputs)

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
                making.spec, making.engine, making.reference, making.folder, self._made_of, **facts
            )
            record.write(str(image.id), stated)
        return f"{text.summary(made)}\n  report {store.write(made, inputs=self._inputs)}"
