"""Expands the catalog's families into variants: a family is one base, a variant one image on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from images.errors import CatalogError

AXES = ("kind", "verl", "rollouts", "machines", "each_gpu", "for")
Table = Mapping[str, Any]


def variants(tables: Table) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and table of every variant of a catalog, the first of a family being its own."""
    for family, own in tables["families"].items():
        kind = own.get("kind", "")
        if kind not in tables["kinds"]:
            raise CatalogError(f"families.{family} has kind {kind!r}; there are: {', '.join(tables['kinds'])}")
        shared = merged(tables["kinds"][kind], own)
        for axis in ("verl", "rollouts"):
            if not shared.get(axis):
                raise CatalogError(f"families.{family} has no {axis}")
        if strangers := set(shared.get("for", {})) - set(shared["verl"]):
            raise CatalogError(f"families.{family}.for names releases that are none of its own: {sorted(strangers)}")
        machines, gpus = shared.get("machines", ["x86_64"]), shared.get("gpus", [])
        alone = [[gpu] for gpu in gpus] if shared.get("each_gpu") and len(gpus) > 1 else []
        for verl, rollout, machine, few in product(shared["verl"], shared["rollouts"], machines, [gpus, *alone]):
            suffixes = [
                rollout if rollout != shared["rollouts"][0] else "",
                few[0] if few != gpus else "",
                machine if machine != machines[0] else "",
                f"verl{verl}" if verl != shared["verl"][0] else "",
            ]
            if verl not in tables["releases"]:
                raise CatalogError(f"families.{family} has verl {verl}, which has no table under releases")
            layers = [tables["kinds"][kind], tables["releases"][verl], own, own.get("for", {}).get(verl, {})]
            axes = {"family": family, "rollout": rollout, "machine": machine, "gpus": few}
            yield "-".join(filter(None, [family, *suffixes])), {**_table(layers, verl), **axes}


def merged(first: Table, second: Table) -> dict[str, Any]:
    """Both tables, the second's values before the first's, table within table."""
    both = dict(first)
    for key, value in second.items():
        inner = both.get(key)
        both[key] = merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return both


def _table(layers: Sequence[Table], verl: str) -> dict[str, Any]:
    """A variant's own keys; verl stands among what it installs, after torch, which is installed first."""
    table: dict[str, Any] = {}
    for layer in layers:
        table = merged(table, layer)
    for key in ("installs", "outside"):
        table[key] = {name: value for name, value in table.get(key, {}).items() if value}
    first = {name: version for name, version in table["installs"].items() if name == "torch"}
    table["installs"] = {**first, "verl": verl, **table["installs"]}
    return {key: value for key, value in table.items() if key not in AXES}
