"""Key tables of verl's releases: translate verl 0.9's names, which recipes use, to older ones.

verl-*.yaml has a table for the releases from its version on, within its series; moved.yaml the history of the keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from verl_node.errors import BadTrainingConfig
from verl_node.settings.overrides import Override

FOLDER = Path(__file__).parent
Series = tuple[int, ...]


@dataclass(frozen=True)
class Release:
    """The table of a series: names of verl 0.9's keys in it, and the values that it accepts."""

    series: str
    cpus_per_gpu: int
    file_logger: bool
    runtime_env: bool
    critic_ignores_batches: bool
    rename: dict[str, str]
    absent: tuple[str, ...]
    choices: dict[str, tuple[str, ...]]

    def least_cpus(self, gpus: int) -> int:
        """Return the CPUs that a node with ``gpus`` GPUs needs: Ray waits forever for a bundle that fits nowhere.

        A bundle of its resource pool requests ``cpus_per_gpu`` with each GPU; the trainer takes one more on its node.
        """
        return self.cpus_per_gpu * gpus + 1

    def translate(self, override: Override) -> Override:
        """Return the override with this release's key.

        A new name that begins with `+` is a key that the release reads although its YAML does not list it.

        Raises BadTrainingConfig if the release has no such key, or renamed it since.
        """
        if forwards(override.key, history()[-1].series) != (override.key, ""):
            self._require_known(override)
        if old := _longest_prefix(override.key, self.rename):
            new = self.rename[old] + override.key[len(old) :]
            add = "+" if new.startswith("+") else override.mark
            return Override(add, new.lstrip("+"), override.value)
        if override.mark in ("", "~") and _longest_prefix(override.key, self.absent):
            raise BadTrainingConfig(
                f"{override.key} has no counterpart in verl {self.series}.",
                fix="Leave it out, or use an image with a verl that has it (verl 0.9).",
            )
        return Override(override.mark, _backwards(override.key, series_of(self.series)), override.value)

    def _require_known(self, override: Override) -> None:
        """Raise BadTrainingConfig with today's name if this release dropped the key."""
        now, instead = forwards(override.key, series_of(self.series))
        if instead and override.mark in ("", "~"):
            raise BadTrainingConfig(f"verl {self.series} has no {override.key}.", fix=instead)
        if not instead and now != override.key:
            raise BadTrainingConfig(
                f"{override.key} is a key of an older verl; verl {self.series} has no such key.", fix=f"Use {now}."
            )


def load(version: str, folder: Path = FOLDER) -> Release:
    """Return the table for a version of verl, the newest one for a version newer than all tables.

    Raises BadTrainingConfig if no table covers the version.
    """
    tables = {series_of(path.stem[len("verl-") :]): path for path in folder.glob("verl-*.yaml")}
    release = series_of(version)
    fits = [series for series in tables if series <= release and (series[:2] == release[:2] or series == max(tables))]
    if not fits:
        known = ", ".join(_name(series) for series in sorted(tables))
        raise BadTrainingConfig(
            f"There is no key table for verl {version}; there are tables for {known} (and anything newer).",
            fix=f"Use an image with one of these, or add {folder.name}/verl-{_name(release[:2])}.yaml.",
        )
    series = max(fits)
    table: dict[str, Any] = yaml.safe_load(tables[series].read_text())
    return Release(
        series=_name(series),
        cpus_per_gpu=table["cpus_per_gpu"],
        file_logger=table["file_logger"],
        runtime_env=table["runtime_env"],
        critic_ignores_batches=table["critic_ignores_batches"],
        rename=table.get("rename") or {},
        absent=tuple(
            f"{parent}.{name}".lstrip(".") for parent, names in (table.get("absent") or {}).items() for name in names
        ),
        choices={key: tuple(map(str, values)) for key, values in table["choices"].items()},
    )


@dataclass(frozen=True)
class Step:
    """The changes of one release to the keys of the previous one."""

    series: Series
    moved: dict[str, str]
    merged: dict[str, str]
    removed: dict[str, str]
    back: tuple[str, ...]


@lru_cache(maxsize=1)
def history() -> tuple[Step, ...]:
    """Return the changes of every release, the oldest first."""
    table: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "moved.yaml").read_text(encoding="utf-8"))
    steps = [
        Step(
            series_of(name),
            entry.get("moved") or {},
            entry.get("merged") or {},
            entry.get("removed") or {},
            tuple(entry.get("back") or ()),
        )
        for name, entry in table.items()
    ]
    return tuple(sorted(steps, key=lambda step: step.series))


def forwards(key: str, series: Series) -> tuple[str, str]:
    """Return a release's name for an older key, and a fix if the key is gone."""
    now, instead = key, ""
    for step in _steps_since_return(key, series):
        renamed = {**step.moved, **step.merged}
        old, gone = _longest_prefix(now, renamed), _longest_prefix(now, step.removed)
        if len(old) > len(gone):
            now, instead = renamed[old] + now[len(old) :], ""
        elif gone:
            instead = step.removed[gone]
    return now, instead


def _backwards(key: str, series: Series) -> str:
    """Return a release's name for a key of a newer one; the key itself if no release changed it."""
    for step in reversed([step for step in history() if step.series > series]):
        older = {new: old for old, new in step.moved.items()}
        if new := _longest_prefix(key, older):
            key = older[new] + key[len(new) :]
    return key


def _longest_prefix(key: str, names: Iterable[str]) -> str:
    """Return the longest of ``names`` that is ``key`` or one of its parents, or an empty string."""
    return max((name for name in names if key == name or key.startswith(name + ".")), key=len, default="")


def _steps_since_return(key: str, series: Series) -> list[Step]:
    """Return the steps up to a release, from the last return of the key on."""
    steps: list[Step] = []
    for step in history():
        if step.series > series:
            break
        steps = [step] if _longest_prefix(key, step.back) else [*steps, step]
    return steps


def series_of(version: str) -> Series:
    """Return the numbers of a version up to the third, without zeros at the end. Raises BadTrainingConfig."""
    numbers = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    if not numbers:
        raise BadTrainingConfig(f"'{version}' is not a version of verl.", fix="Check the image: `pip show verl`.")
    major, minor, micro = (int(number or 0) for number in numbers.groups())
    return (major, minor, micro) if micro else (major, minor)


def _name(series: Series) -> str:
    return ".".join(map(str, series))
