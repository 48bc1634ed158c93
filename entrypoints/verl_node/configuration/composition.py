"""Composes a configuration with Hydra from verl's YAML files and a command line, without importing verl."""

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

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_node.configuration.finding import Finding, error, errors, warning
from verl_node.reporting.masking import beginning
from verl_node.settings.overrides import Override, parse

# Similarity (of difflib) from which an existing key is suggested for an unknown one.
SIMILAR = 0.75
MOVED = 0.3  # similarity of the parents for a key with the same name elsewhere
# Similarity from which an added key (+) is reported as a typo.
TYPO = 0.93
# Names of integers: verl's defaults are also 0 and 1 for many values that may have a fraction.
COUNTS = re.compile(r"(^|\.)n$|(size|len|length|per_gpu|freq|steps|epochs|nnodes|per_node|workers|seqs|turns)$")


@dataclass(frozen=True)
class Source:
    """The location of a trainer's configuration, from its @hydra.main."""

    folder: Path
    name: str


@dataclass
class Composed:
    """The composed configuration, None if that failed, and the findings."""

    config: Any = None
    findings: list[Finding] = field(default_factory=list)


def source(module: str) -> Source | None:
    """Read the trainer's decorator; None for a module that does not use Hydra or does not exist."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    for folder in spec.submodule_search_locations or () if spec else ():
        file = Path(folder, *rest).with_suffix(".py")
        if file.is_file():
            return _decorated(file)
    return _decorated(Path(spec.origin)) if spec and spec.origin and not rest else None


def _decorated(file: Path) -> Source | None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("hydra.main", "main"):
            given = {
                keyword.arg: keyword.value.value for keyword in node.keywords if isinstance(keyword.value, ast.Constant)
            }
            if given.get("config_path") and given.get("config_name"):
                name = str(given["config_name"])
                return Source(file.parent / str(given["config_path"]), name[:-5] if name.endswith(".yaml") else name)
    return None


def compose(source: Source, arguments: Sequence[str]) -> Composed:
    """Compose with the overrides of a command line, except those with an unknown key."""
    overrides = [parse(argument) for argument in arguments]
    groups = [str(override) for override in overrides if _is_group(source, override)]
    composed = Composed()
    with initialize_config_dir(str(source.folder.resolve()), version_base=None):
        try:
            defaults = _defaults(source, tuple(groups))
            known = list(keys(defaults))
            by_override = {
                str(override): list(_key_findings(override, defaults, known, source)) for override in overrides
            }
            composed.findings += [finding for findings in by_override.values() for finding in findings]
            valid = [override for override, findings in by_override.items() if not any(errors(findings))]
            composed.config = hydra_compose(source.name, overrides=valid)
        except (HydraException, OmegaConfBaseException) as refusal:
            composed.findings.append(error("", f"Hydra rejects it: {_message(refusal)}.", "Correct that override."))
    if composed.config is not None:
        for override in overrides:
            if str(override) in valid:
                composed.findings += _value_findings(override, defaults, composed.config)
    return composed


@lru_cache(maxsize=4)
def _defaults(source: Source, groups: tuple[str, ...]) -> Any:
    """Compose with the same groups and no other override, which takes Hydra half a second."""
    return hydra_compose(source.name, overrides=list(groups))


def resolve(config: Any) -> tuple[dict[str, Any], list[Finding]]:
    """Return the values with interpolations resolved, or an error."""
    try:
        values = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as failure:
        key = failure.full_key or ""
        return {}, [error(key, f"{key or 'A value'} cannot be resolved: {_message(failure)}.", f"Set {key}=VALUE.")]
    assert isinstance(values, dict)
    return {str(name): value for name, value in values.items()}, []


def nearest(key: str, known: Sequence[str], similar: float = SIMILAR) -> str:
    """Return the most similar key, a typo or the same name elsewhere; empty for none."""
    parent, _, leaf = key.rpartition(".")
    scores = {}
    for other in known:
        its_parent, _, its_leaf = other.rpartition(".")
        names = difflib.SequenceMatcher(None, leaf, its_leaf)
        if names.real_quick_ratio() >= similar and names.ratio() >= similar:
            scores[other] = names.ratio() + difflib.SequenceMatcher(None, parent, its_parent).ratio()
    best = max(scores, key=lambda other: scores[other], default="")
    moved = best.rpartition(".")[2] == leaf
    return best if best and scores[best] >= (1 + MOVED if moved else 2 * similar) else ""


def keys(config: Any, prefix: str = "") -> Iterator[str]:
    """Yield every key of a configuration, mappings and leaves."""
    for name in map(str, config):
        yield f"{prefix}{name}"
        value = config._get_node(name)
        if isinstance(value, DictConfig) and not value._is_none() and not value._is_interpolation():
            yield from keys(value, f"{prefix}{name}.")


def _is_group(source: Source, override: Override) -> bool:
    name = override.key.partition("@")[0]
    return "@" in override.key or ("." not in name and (source.folder / name).is_dir())


def _key_findings(override: Override, defaults: Any, known: Sequence[str], source: Source) -> Iterator[Finding]:
    """Check that the trainer has the key, with a clearer message than Hydra's."""
    key = override.key
    if _is_group(source, override) or key.startswith("hydra.") or override.mark == "++":
        return
    if key in known:
        if override.mark == "+":
            yield error(key, f"{override} adds a key that exists.", f"Set {key}={override.value}, without the +.")
        return
    if override.mark == "+":
        if similar := nearest(key, known, TYPO):
            yield warning(
                key, f"{key} is added, but the trainer does not read it.", f"Use {similar} if you meant that."
            )
        return
    if any(_is_interpolated(defaults, parent) for parent in _parents(key)):
        return
    # Keys of older releases remain as null: prefer keys with a value.
    similar = nearest(key, [other for other in known if _value(defaults, other) is not None]) or nearest(key, known)
    yield error(
        key,
        f"The trainer's configuration has no {key}.",
        f"Use {similar}." if similar else f"Leave it out, or add it as +{key} if a module of yours reads it.",
    )


def _value_findings(override: Override, defaults: Any, config: Any) -> Iterator[Finding]:
    """Check that a value has the type of the trainer's default."""
    key = override.key
    if override.mark == "~" or "@" in key or key.startswith("hydra."):
        return
    try:
        default, given = OmegaConf.select(defaults, key), OmegaConf.select(config, key)
    except OmegaConfBaseException:  # an interpolation, which `resolve` reports
        return
    expected = _expected_type(key, default, given)
    if default is not None and given is not None and expected:
        integral = isinstance(given, float) and given.is_integer()
        fix = f"Set {key}={int(given)}." if integral else f"Set {key} to a value like {default}."
        if isinstance(default, DictConfig):
            fix = f"Set the keys below {key}."
        yield error(key, f"{key} is {given!r}; {expected} is required.", fix)


def _expected_type(key: str, default: Any, given: Any) -> str:
    """Return the type of ``default`` as text, empty if ``given`` has it or it is unknown."""
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if isinstance(default, bool):
        return "" if isinstance(given, bool) else "true or false"
    if isinstance(default, int) and COUNTS.search(key):
        return "" if isinstance(given, int) and number else "an integer"
    if isinstance(default, (int, float)):
        return "" if number else "a number"
    if hasattr(default, "items"):
        return "" if hasattr(given, "items") else "a mapping"
    return ""


def _value(config: Any, key: str) -> Any:
    try:
        return OmegaConf.select(config, key)
    except OmegaConfBaseException:  # an interpolation of a missing key counts as a value
        return key


def _parents(key: str) -> list[str]:
    names = key.split(".")
    return [".".join(names[:length]) for length in range(1, len(names))]


def _is_interpolated(config: Any, key: str) -> bool:
    for name in key.split("."):
        if not hasattr(config, "_get_node") or name not in config:
            return False
        node = config._get_node(name)
        if node._is_interpolation():
            return True
        config = node
    return False


def _message(refusal: Exception) -> str:
    return beginning(" ".join(str(refusal).split()), 300).rstrip(".")
