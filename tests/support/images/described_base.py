"""A base of metadata alone: the packages of a description as dist-info folders, on which the guard of a build runs.

The guard's own calls of pip reach ``DescribedBase.pip``: it exchanges dist-info folders as pip would, and checks them
for the base's Python. No package is installed and no process is started.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from packaging.utils import canonicalize_name

from images.catalog.variant import Variant
from images.pins import locks, requirements
from images.pins.requirements import Distribution


class DescribedBase:
    """Distributions in a site-packages folder, for a Python that this machine need not have."""

    def __init__(
        self, folder: Path, packages: Mapping[str, Distribution], python: str, machine: str = "x86_64"
    ) -> None:
        self.site, self.python, self.machine = folder / "site-packages", python, machine
        self.packages: dict[str, Distribution] = {}
        for each in packages.values():
            self.put(each)

    def put(self, new: Distribution) -> None:
        """Install a distribution in place of the one of its name."""
        name = canonicalize_name(new.name)
        if old := self.packages.pop(name, None):
            shutil.rmtree(self._info(old))
        self.packages[name] = new
        info = self._info(new)
        info.mkdir(parents=True)
        lines = [f"Metadata-Version: 2.1\nName: {new.name}\nVersion: {new.version}"]
        lines += [f"Requires-Dist: {line}" for line in new.requires or ()]
        (info / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (info / "RECORD").write_text(f"{info.name}/METADATA,,\n", encoding="utf-8")

    def pip(self, argv: Sequence[str], **_: Any) -> SimpleNamespace:
        """Answer `python -m pip …` as `subprocess.run` does."""
        verb, arguments = argv[3], [*argv]
        output = ""
        if verb == "check":
            output = "\n".join(requirements.conflicts(self.packages, self.python, self.machine))
        elif verb == "install" and "--target" not in arguments:
            self._install(Path(arguments[arguments.index("-r") + 1]))
        elif verb == "wheel":
            for line in Path(arguments[arguments.index("-r") + 1]).read_text(encoding="utf-8").splitlines():
                name, version = line.split()[0].split("==")
                folder = Path(arguments[arguments.index("--wheel-dir") + 1])
                (folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl").touch()
        return SimpleNamespace(stdout=output, returncode=0)

    def _install(self, file: Path) -> None:
        for line in filter(None, file.read_text(encoding="utf-8").splitlines()):
            name, version = line.split()[0].split("==")
            self.put(requirements.distribution(name, version))

    def _info(self, each: Distribution) -> Path:
        return self.site / f"{each.name.replace('-', '_')}-{each.version}.dist-info"

    def _light(self, each: Distribution) -> SimpleNamespace:
        """Return the parts of a distribution that the guard reads, without parsing the METADATA of hundreds again."""
        return SimpleNamespace(
            metadata={"Name": each.name}, version=each.version, locate_file=lambda path: self.site / path
        )

    @contextmanager
    def running(self, guard: ModuleType, folder: Path) -> Iterator[None]:
        """Let the guard see and change these packages alone."""
        finder = SimpleNamespace(
            distributions=lambda: [self._light(each) for each in self.packages.values()],
            distribution=lambda name: metadata.PathDistribution(self._info(self.packages[name])),
        )
        with (
            mock.patch.object(guard, "FOLDER", folder),
            mock.patch.object(guard, "metadata", finder),
            mock.patch.object(guard, "subprocess", SimpleNamespace(run=self.pip)),
        ):
            yield


def replacement(name: str, version: str) -> Distribution:
    """Return a package that a build makes from source, with the Requires-Dist of that source."""
    key = next(
        key for key in requirements.outside_index() if key.startswith((f"{name}=={version}+", f"{name}=={version} "))
    )
    return requirements.distribution(name, key.split("==")[1])


def build(guard: ModuleType, base: DescribedBase, variant: Variant, lock: str, folder: Path) -> None:
    """Carry out the guarded steps of a variant's Dockerfile; the guard ends with SystemExit if the image is wrong."""
    others, verl = locks.split(lock, "verl")
    files = {"lock.txt": others, "verl.txt": verl}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    release = f"verl=={variant.installs['verl']}"
    with base.running(guard, folder):
        guard.record(variant.guarded, folder / "lock.txt", variant.requested, [])
        for name, new in variant.replaces.items():
            base.put(replacement(name, new.version))
        guard.install(folder / "lock.txt")
        guard.verify(variant.built_pins, [], variant.tolerates)
        guard.install(folder / "lock.txt", folder / "verl.txt", wanted=[release])
        guard.verify([release], [], variant.tolerates)
