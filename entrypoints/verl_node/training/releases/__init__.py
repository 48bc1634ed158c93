"""Key tables of verl's releases: translate verl 0.9's names, which recipes use, to older ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from verl_node.errors import BadTrainingConfig
from verl_node.settings.overrides import Override
from verl_node.training.releases import history

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Release:
    """One table: how to say an override of verl 0.9 to the releases of one series, and the values that they know."""

    series: str
    cpus_per_gpu: int
    file_logger: bool
    runtime_env: bool
    rename: dict[str, str]
    absent: tuple[str, ...]
    choices: dict[str, tuple[str, ...]]

    def least_cpus(self, gpus: int) -> int:
        """The CPUs that a node with ``gpus`` GPUs must give: Ray waits without end for a bundle that fits nowhere.

        A bundle of its resource pool asks for ``cpus_per_gpu`` beside each GPU; the trainer itself takes one more on
        whatever node it lands.
        """
        return self.cpus_per_gpu * gpus + 1

    def translate(self, override: Override) -> Override:
        """The same override by this release's names.

        A new name that begins with `+` is one that the release reads although its YAML does not list it.

        Raises:
            BadTrainingConfig: The release has no such setting, or calls it otherwise since verl 0.9.
        """
        if not history.is_current(override.key):
            self._refuse(override)
        if old := history.longest_prefix(override.key, self.rename):
            new = self.rename[old] + override.key[len(old) :]
            add = "+" if new.startswith("+") else override.mark
            return Override(add, new.lstrip("+"), override.value)
        if override.mark in ("", "~") and history.longest_prefix(override.key, self.absent):
            raise BadTrainingConfig(
                f"{override.key} has no counterpart in verl {self.series}.",
                fix="Leave it out, or use an image with a verl that has it (verl 0.9).",
            )
        return Override(override.mark, history.backwards(override.key, self._numbers), override.value)

    def _refuse(self, override: Override) -> None:
        """Raise where this release has no key of that name any more, and say what it is now."""
        now, instead = history.forwards(override.key, self._numbers)
        if instead and override.mark in ("", "~"):
            raise BadTrainingConfig(f"verl {self.series} has no {override.key}.", fix=instead)
        if not instead and now != override.key:
            raise BadTrainingConfig(
                f"{override.key} is a key of an older verl; verl {self.series} has none of that name.",
                fix=f"Say {now}.",
            )

    @property
    def _numbers(self) -> history.Series:
        return _series(self.series)


def load(version: str, folder: Path = FOLDER) -> Release:
    """The table for verl ``version``; a release newer than every table is taken to keep the newest one's names.

    Raises:
        BadTrainingConfig: No table covers the version.
    """
    tables = {_series(path.stem[len("verl-") :]): path for path in folder.glob("verl-*.yaml")}
    wanted = _series(version)
    wanted = min(wanted, max(tables))
    if wanted not in tables:
        known = ", ".join(f"{major}.{minor}" for major, minor in sorted(tables))
        raise BadTrainingConfig(
            f"There is no key table for verl {version}; there are tables for {known} (and anything newer).",
            fix=f"Use an image with one of these, or add {folder.name}/verl-{'.'.join(map(str, wanted))}.yaml.",
        )
    table: dict[str, Any] = yaml.safe_load(tables[wanted].read_text())
    return Release(
        series=".".join(map(str, wanted)),
        cpus_per_gpu=table["cpus_per_gpu"],
        file_logger=table["file_logger"],
        runtime_env=table["runtime_env"],
        rename=table.get("rename") or {},
        absent=tuple(
            f"{parent}.{name}".lstrip(".") for parent, names in (table.get("absent") or {}).items() for name in names
        ),
        choices={key: tuple(map(str, values)) for key, values in table["choices"].items()},
    )


def _series(version: str) -> tuple[int, int]:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if not numbers:
        raise BadTrainingConfig(f"'{version}' is not a version of verl.", fix="Ask the image: `pip show verl`.")
    return int(numbers[1]), int(numbers[2])
