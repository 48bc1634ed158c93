"""Parser for Hydra overrides: parse, quote and merge without Hydra."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from verl_node.errors import BadTrainingConfig

_OVERRIDE = re.compile(r"(?P<mark>\+\+|\+|~|)(?P<key>[A-Za-z_][\w.@/:$-]*)(?:=(?P<value>.*))?", re.DOTALL)

# A single quoted string; YAML reads its backslashes differently from Hydra.
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)

# Values that Hydra's grammar accepts without quotes.
_PLAIN = re.compile(r"[A-Za-z0-9_./:%+-]+")


@dataclass(frozen=True)
class Override:
    """A `key=value` of Hydra's command line; ``mark`` is `+`, `++`, `~` or empty, ``value`` is in Hydra's grammar."""

    mark: str
    key: str
    value: str | None

    def __str__(self) -> str:
        return f"{self.mark}{self.key}" + ("" if self.value is None else f"={self.value}")

    def plain(self) -> Any:
        """Return the value as a Python object (`[console,wandb]` is a list), or its text if only Hydra can parse it."""
        if quotes := _QUOTED.fullmatch(self.value or ""):
            return re.sub(r"(\\+)('|$)", lambda found: found[1][: len(found[1]) // 2] + found[2], quotes[1])
        try:
            return yaml.safe_load(self.value or "")
        except yaml.YAMLError:
            return self.value


def parse(text: str) -> Override:
    """Parse an override of a command line. Raises BadTrainingConfig, such as for a flag or a bare word."""
    match = _OVERRIDE.fullmatch(text)
    if not match or (match["value"] is None and match["mark"] != "~"):
        raise BadTrainingConfig(
            f"'{text}' is not a Hydra override.", fix="Write key=value, +key=value to add a key, ~key to remove one."
        )
    return Override(match["mark"], match["key"], match["value"])


def flatten(mapping: Mapping[str, Any], prefix: str = "") -> Iterator[Override]:
    """Yield the overrides of a recipe's flat or nested mapping, in its order."""
    for name, value in mapping.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{key}.")
        else:
            yield parse(f"{key}={literal(value)}")


def literal(value: Any) -> str:
    """Return ``value`` in Hydra's grammar.

    A string that looks like a number becomes one (`1e-6`, a string in YAML 1.1); `quoted` keeps it a string.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(literal(item) for item in value) + "]"
    return str(value) if _PLAIN.fullmatch(str(value)) else quoted(str(value))


def quoted(text: str) -> str:
    """Return any text as a string of Hydra's grammar, in which a backslash escapes only quotes and itself."""
    escaped = re.sub(r"(\\+)(?='|$)", r"\1\1", text).replace("'", "\\'")
    return f"'{escaped}'"


def merge(*layers: Iterable[Override]) -> dict[str, Override]:
    """Return one override per key, that of the last layer; a key that an earlier layer added (`+`) keeps its `+`."""
    merged: dict[str, Override] = {}
    for override in (override for layer in layers for override in layer):
        below = merged.get(override.key)
        added = below is not None and below.mark == "+" and override.mark == ""
        merged[override.key] = Override("+" if added else override.mark, override.key, override.value)
    return merged
