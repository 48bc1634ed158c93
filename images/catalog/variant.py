"""A variant: all fields of one image of the catalog, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from images.errors import CatalogError


@dataclass(frozen=True)
class Replacement:
    """A package of the base that verl cannot use, and the source commit that takes its place."""

    version: str
    repository: str
    commit: str
    reason: str
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Lock:
    """What `invoke image.lock` tells the resolver beyond ``installs``."""

    with_: Sequence[str] = ()
    override: Sequence[str] = ()
    omit: Sequence[str] = ()


@dataclass(frozen=True)
class Variant:
    """One image of the catalog. Besides ``name`` the fields are catalog.toml's keys, explained at its top."""

    name: str
    family: str
    platform: str
    summary: str
    base: str
    apt_mirror: str
    apt_suites: Sequence[str]
    apt_packages: Sequence[str]
    python: str
    rollout: str
    machine: str
    gpus: Sequence[str]
    installs: Mapping[str, str]
    imports: Sequence[str]
    protected: Sequence[str]
    sources: Sequence[str]
    base_digest: str = ""  # of images/pins/bases.json, where a registry was asked
    base_layers: str = ""  # how they are compressed, of the same place
    base_made: str = ""
    has: Mapping[str, str] = field(default_factory=dict)
    extras: Mapping[str, Sequence[str]] = field(default_factory=dict)
    replaces: Mapping[str, Replacement] = field(default_factory=dict)
    tolerates: Sequence[str] = ()
    outside: Mapping[str, str] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)
    source: str = (
        ""  # where verl's source came from when it is no release: images/context/verl_source.py, never the catalog
    )
    instead_of: str = ""  # the release in whose place it then stands

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> Variant:
        """A variant from its TOML table; an unknown or missing key is a CatalogError that names it."""
        if unknown := set(table) - {each.name for each in fields(cls)}:
            raise CatalogError(f"{name} has unknown keys: {', '.join(sorted(unknown))}")
        values = dict(table)
        lock = {"with_" if key == "with" else key: value for key, value in values.get("lock", {}).items()}
        try:
            values["replaces"] = {name: Replacement(**given) for name, given in values.get("replaces", {}).items()}
            return cls(name=name, **{**values, "lock": Lock(**lock)})
        except TypeError as incomplete:
            raise CatalogError(f"{name}: {incomplete}") from incomplete

    @property
    def architecture(self) -> str:
        """The machine, which is the kernel's name for it, as engines and Debian call it."""
        return {"x86_64": "amd64", "aarch64": "arm64"}[self.machine]

    @property
    def repository(self) -> str:
        """The name of its images without a tag, such as `verl.cpu`."""
        return f"verl.{self.platform}"

    @property
    def tag(self) -> str:
        """The release of verl, then what else the variant is."""
        verl = self.installs["verl"]
        of_source = f"-{self.source}" if self.source else ""
        return f"{verl}-{self.name.removesuffix(f'-verl{verl}')}{of_source}".replace("+", "_")

    @property
    def base_pinned(self) -> str:
        """The base by its digest, where that is known."""
        return f"{self.base}@{self.base_digest}" if self.base_digest else self.base

    @property
    def pins(self) -> dict[str, str]:
        """Name to version of all that the catalog fixes: what the base has, what replaces it, what is installed."""
        replaced = {name: new.version for name, new in self.replaces.items()}
        return {"python": self.python, **self.has, **replaced, **self.installs}

    @property
    def promises(self) -> list[str]:
        """``name==version`` of what must be inside when all but verl is, as far as the build put it there."""
        replaced = {name: new.version for name, new in self.replaces.items()}
        return [f"{name}=={version}" for name, version in {**self.installs, **replaced}.items() if name != "verl"]

    @property
    def asked(self) -> list[str]:
        """What the lock is asked for by name; torch is there before it, verl comes after it."""
        from packaging.utils import canonicalize_name

        apart = ("torch", "verl")
        return [f"{canonicalize_name(name)}=={version}" for name, version in self.installs.items() if name not in apart]

    @property
    def released(self) -> Variant:
        """The variant of the catalog, where this is one with another verl."""
        if not self.source:
            return self
        return replace(self, installs={**self.installs, "verl": self.instead_of}, source="", instead_of="")

    @property
    def imports_below(self) -> list[str]:
        """What can be imported without verl."""
        return [name for name in self.imports if name.partition(".")[0] != "verl"]

    @property
    def guarded(self) -> list[str]:
        """The packages that no installation may change."""
        from packaging.utils import canonicalize_name

        return sorted({canonicalize_name(name) for name in self.protected} - {*self.replaces})

    def requirement(self, name: str) -> str:
        """``name[extras]==version`` of one of ``installs``."""
        extras = ",".join(self.extras.get(name, ()))
        return f"{name}[{extras}]=={self.installs[name]}" if extras else f"{name}=={self.installs[name]}"
