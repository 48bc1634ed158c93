"""Composes a configuration from verl's own YAML files and a command line with Hydra, without importing verl."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from verl_node.configuration.finding import Finding, error, errors, warning
from verl_node.reporting.masking import beginning
from verl_node.settings.overrides import Override, parse

# A key that exists is taken for the one that was meant from here on; below, it would be a guess.
ALIKE = 0.75
MOVED = 0.3  # and how much the places have to be alike of a key whose name is the same
# A key that is added is taken for a slip of one that exists from here on: it may well be meant.
SLIP = 0.93
# Names of values that are counted: verl writes 0 and 1 for many that may have a fraction.
COUNTS = re.compile(r"(^|\.)n$|(size|len|length|per_gpu|freq|steps|epochs|nnodes|per_node|workers|seqs|turns)$")


@dataclass(frozen=True)
class Source:
    """Where a trainer's @hydra.main says that its configuration is."""

    folder: Path
    name: str


@dataclass
class Composed:
    """The whole configuration, None where it could not be made, and what was found on the way."""

    config: Any = None
    findings: list[Finding] = field(default_factory=list)


def source(module: str) -> Source | None:
    """Read the trainer's decorator; None for a module that is none of Hydra's, or not here."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    for place in spec.submodule_search_locations or () if spec else ():
        file = Path(place, *rest).with_suffix(".py")
        if file.is_file():
            return _decorated(file)
    return _decorated(Path(spec.origin)) if spec and spec.origin and not rest else None


def _decorated(file: Path) -> Source | None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("hydra.main", "main"):
            said = {word.arg: word.value.value for word in node.keywords if isinstance(word.value, ast.Constant)}
            if said.get("config_path") and said.get("config_name"):
                name = str(said["config_name"])
                return Source(file.parent / str(said["config_path"]), name[:-5] if name.endswith(".yaml") else name)
    return None


def compose(source: Source, words: Sequence[str]) -> Composed:
    """Compose with ``words``, the overrides of a command line, but for those that the trainer has no key for."""
    from hydra import compose as by_hydra
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    overrides = [parse(word) for word in words]
    groups = [str(one) for one in overrides if _is_group(source, one)]
    made = Composed()
    with initialize_config_dir(str(source.folder.resolve()), version_base=None):
        try:
            bare = _bare(source, tuple(groups))
            known = list(keys(bare))
            of_keys = {str(one): list(_of_key(one, bare, known, source)) for one in overrides}
            made.findings += [found for some in of_keys.values() for found in some]
            understood = [word for word, some in of_keys.items() if not any(errors(some))]
            made.config = by_hydra(source.name, overrides=understood)
        except (HydraException, OmegaConfBaseException) as refused:
            made.findings.append(error("", f"Hydra refuses it: {_words(refused)}.", "Correct that override."))
    if made.config is not None:
        kept = [one for one in overrides if str(one) in understood]
        made.findings += [found for one in kept for found in _of_value(one, bare, made.config)]
    return made


@lru_cache(maxsize=4)
def _bare(source: Source, groups: tuple[str, ...]) -> Any:
    """The configuration with the same groups and no other override; Hydra takes half a second for it."""
    from hydra import compose as by_hydra

    return by_hydra(source.name, overrides=list(groups))


def resolved(config: Any) -> tuple[dict[str, Any], list[Finding]]:
    """Return it without interpolations, or what cannot be resolved."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        whole = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as failed:
        key = failed.full_key or ""
        return {}, [error(key, f"{key or 'A value'} cannot be resolved: {_words(failed)}.", f"Say {key}=VALUE.")]
    assert isinstance(whole, dict)
    return {str(name): value for name, value in whole.items()}, []


def nearest(key: str, known: Sequence[str], alike: float = ALIKE) -> str:
    """The key of ``known`` that ``key`` most likely means, empty for none: a slip, or the same name elsewhere."""
    parent, _, leaf = key.rpartition(".")
    scores = {}
    for other in known:
        its_parent, _, its_leaf = other.rpartition(".")
        names = difflib.SequenceMatcher(None, leaf, its_leaf)
        if names.real_quick_ratio() >= alike and names.ratio() >= alike:
            places = difflib.SequenceMatcher(None, parent, its_parent).ratio()
            scores[other] = names.ratio() + places
    best = max(scores, key=lambda other: scores[other], default="")
    moved = best.rpartition(".")[2] == leaf
    return best if best and scores[best] >= (1 + MOVED if moved else 2 * alike) else ""


def keys(config: Any, prefix: str = "") -> Iterator[str]:
    """Every key of a configuration, mappings and leaves."""
    from omegaconf import DictConfig

    for name in map(str, config):
        yield f"{prefix}{name}"
        value = config._get_node(name)
        if isinstance(value, DictConfig) and not value._is_none() and not value._is_interpolation():
            yield from keys(value, f"{prefix}{name}.")


def _is_group(source: Source, override: Override) -> bool:
    name = override.key.partition("@")[0]
    return "@" in override.key or ("." not in name and (source.folder / name).is_dir())


def _of_key(override: Override, bare: Any, known: Sequence[str], source: Source) -> Iterator[Finding]:
    """Hold a key against the trainer's own, where Hydra would only say that it is not in the struct."""
    key = override.key
    if _is_group(source, override) or key.startswith("hydra.") or override.mark == "++":
        return
    if key in known:
        if override.mark == "+":
            yield error(key, f"{override} adds a key that is there.", f"Say {key}={override.value}, without the +.")
        return
    if override.mark == "+":
        if meant := nearest(key, known, SLIP):
            yield warning(
                key, f"{key} is added, and the trainer reads none of that name.", f"It has {meant}: was that meant?"
            )
        return
    if any(_interpolated(bare, parent) for parent in _parents(key)):
        return
    # Keys of older releases stay as null; what has a value of its own is what is meant first.
    meant = nearest(key, [other for other in known if _at(bare, other) is not None]) or nearest(key, known)
    yield error(
        key,
        f"The trainer's configuration has no {key}.",
        f"Say {meant}." if meant else f"Leave it out, or say +{key} where a module of yours reads it.",
    )


def _of_value(override: Override, bare: Any, config: Any) -> Iterator[Finding]:
    """Hold a value against the kind of the trainer's own one."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    key = override.key
    if override.mark == "~" or "@" in key or key.startswith("hydra."):
        return
    try:
        own, given = OmegaConf.select(bare, key), OmegaConf.select(config, key)
    except OmegaConfBaseException:  # an interpolation of either; `resolved` tells
        return
    wanted = _wanted(key, own, given)
    if own is not None and given is not None and wanted:
        fix = (
            f"Say {key}={int(given)}."
            if isinstance(given, float) and given.is_integer()
            else f"Say {key}={own} or the like."
        )
        yield error(key, f"{key} is {given!r}, and {wanted} is wanted.", fix)


def _wanted(key: str, own: Any, given: Any) -> str:
    """In words what kind of value ``own`` is, empty where ``given`` is of it or nobody can tell."""
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if isinstance(own, bool):
        return "" if isinstance(given, bool) else "true or false"
    if isinstance(own, int) and COUNTS.search(key):
        return "" if isinstance(given, int) and number else "a whole number"
    if isinstance(own, (int, float)):
        return "" if number else "a number"
    if hasattr(own, "items"):
        return "" if hasattr(given, "items") else "a mapping"
    return ""


def _at(config: Any, key: str) -> Any:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return OmegaConf.select(config, key)
    except OmegaConfBaseException:  # an interpolation of what is not there, yet a value
        return key


def _parents(key: str) -> list[str]:
    names = key.split(".")
    return [".".join(names[:length]) for length in range(1, len(names))]


def _interpolated(config: Any, key: str) -> bool:
    for name in key.split("."):
        if not hasattr(config, "_get_node") or name not in config:
            return False
        node = config._get_node(name)
        if node._is_interpolation():
            return True
        config = node
    return False


def _words(refused: Exception) -> str:
    return beginning(" ".join(str(refused).split()), 300).rstrip(".")
