"""A variant: all fields of one image of the catalog, validated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from typing import Any

from packaging.utils import canonicalize_name

from images.errors import CatalogError, Incompatible

STATES = ("ran", "others", "reasoned")
MOVING = ("latest", "nightly", "stable")  # last word of a tag that its maker sets to new images


@dataclass(frozen=True)
class State:
    """Evidence that this pair of base and verl trains: a run of this project, one of others, or only a reason.

    Raises CatalogError if the evidence that ``kind`` needs is missing.
    """

    kind: str
    what: str
    date: str = ""
    machine: str = ""
    link: str = ""

    def __post_init__(self) -> None:
        if self.kind not in STATES:
            raise CatalogError(f"state {self.kind!r} is not one of {', '.join(STATES)}")
        if len(self.what) < 20:
            raise CatalogError(f"state {self.kind} needs `what`, a sentence; it has {self.what!r}")
        if special := sorted({*str(self)} & {*'"\\$\n'}):
            raise CatalogError(f"state {self.kind} has {special}, and is a label of a Dockerfile, in double quotes")
        if self.kind == "ran" and not (_is_date(self.date) and self.machine):
            raise CatalogError("state ran needs the `date` of the run (YYYY-MM-DD) and the `machine`")
        if self.kind == "others" and not self.link.startswith("https://"):
            raise CatalogError(f"state others needs a `link` to their CI or page; it has {self.link!r}")

    def __str__(self) -> str:
        """The state with its evidence, in one line."""
        when = ", ".join(filter(None, [self.date, self.machine]))
        return f"{self.kind}{f' ({when})' if when else ''}: {self.what}{f' ({self.link})' if self.link else ''}"


@dataclass(frozen=True)
class Replacement:
    """A package that verl cannot use from the base, or that the base does not have, and the commit that replaces it."""

    version: str
    repository: str
    commit: str
    reason: str
    environment: Mapping[str, str] = field(default_factory=dict)
    requires: Sequence[str] = ()
    repairs: Sequence[str] = ()


@dataclass(frozen=True)
class Sdist:
    """A package that an index has as source only; a separate stage compiles it."""

    version: str
    sha256: str


@dataclass(frozen=True)
class Lock:
    """Settings of the resolver for `invoke image.lock`, in addition to ``installs``."""

    with_: Sequence[str] = ()
    override: Sequence[str] = ()
    omit: Sequence[str] = ()


@dataclass(frozen=True)
class Variant:
    """One image of the catalog. Its fields, except ``name``, are catalog.toml's keys, explained at its top."""

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
    state: State
    base_digest: str = ""  # from images/pins/bases.json, if a registry was queried
    base_layers: str = ""  # compression of the base's layers, from the same file
    base_made: str = ""
    has: Mapping[str, str] = field(default_factory=dict)
    extras: Mapping[str, Sequence[str]] = field(default_factory=dict)
    replaces: Mapping[str, Replacement] = field(default_factory=dict)
    repairs: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    advice: str = ""
    compiles: Mapping[str, Sdist] = field(default_factory=dict)
    tolerates: Sequence[str] = ()
    outside: Mapping[str, str] = field(default_factory=dict)
    training: Mapping[str, Sequence[str]] = field(default_factory=dict)
    vllm_mode: str = ""
    sleep_mode: str = ""
    overrides: Mapping[str, str] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)
    source: str = (
        ""  # origin of a verl that is not a release: set by images/context/verl_source.py, never by the catalog
    )
    instead_of: str = ""  # the release that such a verl replaces
    compiled_for: Sequence[str] = ()  # GPU architectures of `--gpus`, if it names fewer than ``gpus``

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> Variant:
        """Make a variant of its TOML table; raise CatalogError for an unknown or missing key."""
        if unknown := set(table) - {each.name for each in fields(cls)}:
            raise CatalogError(f"{name} has unknown keys: {', '.join(sorted(unknown))}")
        values = dict(table)
        lock = {"with_" if key == "with" else key: value for key, value in values.get("lock", {}).items()}
        try:
            values["replaces"] = {name: Replacement(**given) for name, given in values.get("replaces", {}).items()}
            if "state" in values:
                values["state"] = State(**values["state"])
            values["compiles"] = {name: Sdist(**given) for name, given in values.get("compiles", {}).items()}
            return cls(name=name, **{**values, "lock": Lock(**lock)})
        except (TypeError, CatalogError) as error:
            raise CatalogError(f"{name}: {error}") from error

    @property
    def from_wheels(self) -> bool:
        """Whether torch, its CUDA libraries and the rollout engine come from the lock: the base has none of them."""
        return self.platform == "cuda" and "torch" in self.installs

    @property
    def cpu_torch(self) -> str:
        """Version of the torch whose CPU wheel is fetched before the build; empty if the base or the lock has torch."""
        return self.installs.get("torch", "") if self.platform == "cpu" else ""

    @property
    def template(self) -> str:
        """Name of its template in dockerfiles/, without the suffix."""
        return "wheels" if self.from_wheels else self.platform

    @property
    def own(self) -> list[str]:
        """The packages that earlier steps of the build install and later ones may not change."""
        return self.guarded if "torch" in self.installs else []

    @property
    def architecture(self) -> str:
        """The engines' and Debian's name for the machine, whose own name is the kernel's."""
        return {"x86_64": "amd64", "aarch64": "arm64"}[self.machine]

    @property
    def repository(self) -> str:
        """Name of its images without a tag, such as `verl.cpu`."""
        return f"verl.{self.platform}"

    @property
    def tag(self) -> str:
        """Release of verl, then the rest of the variant's name."""
        verl = self.installs["verl"]
        suffixes = "".join(f"-{each}" for each in (*self.compiled_for, self.source) if each)
        return f"{verl}-{self.name.removesuffix(f'-verl{verl}')}{suffixes}".replace("+", "_")

    @property
    def base_pinned(self) -> str:
        """The base, by its digest if that is known."""
        return f"{self.base}@{self.base_digest}" if self.base_digest else self.base

    @property
    def base_moves(self) -> bool:
        """Whether its maker sets the base's tag to new images, and no digest pins it."""
        return not self.base_digest and self.base.endswith(MOVING)

    @property
    def targets(self) -> Sequence[str]:
        """The GPU architectures that the build compiles for."""
        return self.compiled_for or self.gpus

    @property
    def prepares(self) -> bool:
        """Whether the stage of a replaced package installs the lock before it compiles."""
        return any(new.requires for new in self.replaces.values())

    @property
    def pins(self) -> dict[str, str]:
        """Name → version of all that the catalog fixes: packages of the base, replaced and installed ones."""
        compiled = {name: sdist.version for name, sdist in self.compiles.items()}
        return {"python": self.python, **self.has, **self._replaced, **compiled, **self.installs}

    @property
    def _replaced(self) -> dict[str, str]:
        return {name: new.version for name, new in self.replaces.items()}

    @property
    def stages(self) -> list[str]:
        """The packages that are built in a stage of their own."""
        return [*self.replaces, *self.compiles]

    @property
    def built_pins(self) -> list[str]:
        """``name==version`` of what the build has installed before it installs verl."""
        return [f"{name}=={version}" for name, version in {**self.installs, **self._replaced}.items() if name != "verl"]

    @property
    def requested(self) -> list[str]:
        """``name==version`` of what the build installs from the lock by name: torch comes before it, verl after it."""
        apart = ("torch", "verl")
        return [f"{canonicalize_name(name)}=={version}" for name, version in self.installs.items() if name not in apart]

    @property
    def released(self) -> Variant:
        """The variant of the catalog that this one was made of, if it has another verl; else itself."""
        if not self.source:
            return self
        return replace(self, installs={**self.installs, "verl": self.instead_of}, source="", instead_of="")

    @property
    def imports_without_verl(self) -> list[str]:
        """The modules that can be imported before verl is installed."""
        return [name for name in self.imports if name.partition(".")[0] != "verl"]

    @property
    def training_imports(self) -> list[str]:
        """The modules of verl that a training with this rollout imports."""
        return [*self.training.get("worker", ()), *self.training.get(self.rollout, ())]

    @property
    def guarded(self) -> list[str]:
        """The packages that no installation may change."""
        return sorted({canonicalize_name(name) for name in self.protected} - {*self.replaces})

    def for_gpus(self, gpus: Sequence[str]) -> Variant:
        """The variant compiled for some of its GPU architectures; raise Incompatible for one that it does not have."""
        if self.platform != "rocm":
            raise Incompatible(f"{self.name} compiles nothing for a GPU architecture: leave out --gpus.")
        if unknown := [name for name in gpus if name not in self.gpus]:
            raise Incompatible(
                f"{self.name} has no code for {', '.join(unknown)}: --gpus takes {', '.join(self.gpus)}, by comma."
            )
        chosen = tuple(name for name in self.gpus if name in gpus)
        return replace(self, compiled_for=() if len(chosen) == len(self.gpus) else chosen)

    def requirement(self, name: str) -> str:
        """``name[extras]==version`` of one of ``installs``."""
        extras = ",".join(self.extras.get(name, ()))
        return f"{name}[{extras}]=={self.installs[name]}" if extras else f"{name}=={self.installs[name]}"


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
