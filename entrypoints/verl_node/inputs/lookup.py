"""Finds inputs that this node cannot have: before the cluster forms, from the names of files alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from verl_node.errors import InputUnavailable
from verl_node.inputs import hub, reachability
from verl_node.inputs.data import DATA_SETS, store


async def require(
    models: Sequence[str], datasets: Sequence[str], *, data_dir: Path, source: Path | None, env: Mapping[str, str]
) -> None:
    """Do nothing if all inputs are on disk, or the hub answers. `verl_node.prepare` then checks them.

    A data set that may be in ``source`` (VERLJOB_DATA_SOURCE) counts as being there. Raises InputUnavailable with all
    missing inputs at once, after at most `reachability.ANSWER_TIMEOUT_S`.
    """
    missing = [*_missing_models(models, env), *(_missing_datasets(datasets, data_dir, env) if source is None else ())]
    if not missing:
        return
    reason = hub.OFFLINE if hub.is_offline(env) else await reachability.check(hub.address(env), env)
    if reason:
        raise InputUnavailable(
            f"This node has no {' and no '.join(missing)}, and {reason}.",
            fix="Bring them with `./run stage RECIPE` on a machine that reaches it and sees the same folders, "
            "or set VERLJOB_MODEL and VERLJOB_DATA_SOURCE to folders of yours.",
            stage="data",
        )


def _missing_models(models: Sequence[str], env: Mapping[str, str]) -> Iterator[str]:
    for name in models:
        if not name.startswith(("/", "demo:")) and not hub.is_cached(name, "model", env):
            yield f"model {name} in HF_HOME"


def _missing_datasets(datasets: Sequence[str], data_dir: Path, env: Mapping[str, str]) -> Iterator[str]:
    for name in datasets:
        origin = DATA_SETS[name].origin if name in DATA_SETS else None
        if origin is None or (data_dir / name / store.MANIFEST).exists():
            continue
        if not hub.is_cached(origin.repository, "dataset", env):
            yield f"data set {name} in {data_dir}"
