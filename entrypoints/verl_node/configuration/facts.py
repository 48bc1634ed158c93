"""Facts for the rules: the composed configuration, the job, its model and its data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MISSING = "???"  # OmegaConf's mark of a value that has to be given


class Config:
    """A configuration with every interpolation resolved, read by dotted keys."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def get(self, key: str) -> Any:
        """The value, None where there is no such key or where it is missing."""
        value: Any = self.values
        for name in key.split("."):
            if not isinstance(value, Mapping) or name not in value:
                return None
            value = value[name]
        return None if value == MISSING else value

    def has(self, key: str) -> bool:
        """Whether it has that key, with whatever value."""
        parent, _, name = key.rpartition(".")
        values = self.get(parent) if parent else self.values
        return isinstance(values, Mapping) and name in values

    def count(self, key: str, default: int = 0) -> int:
        """The value where it is a whole number, else ``default``: what is none is told by another rule."""
        value = self.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def size(self, key: str) -> int:
        """The value where it counts something, else 1, which divides everything: what is none is told by sizes.py."""
        return max(1, self.count(key, 1))

    def on(self, key: str) -> bool:
        """Whether it is true."""
        return self.get(key) is True

    @property
    def gpus(self) -> int:
        """The GPUs of all nodes."""
        return self.size("trainer.nnodes") * self.per_node

    @property
    def per_node(self) -> int:
        """The GPUs of one node."""
        return self.size("trainer.n_gpus_per_node")

    @property
    def trains_a_critic(self) -> bool:
        """Whether there is one; verl/trainer/ppo/utils.py: need_critic."""
        enabled = self.get("critic.enable")
        return self.get("algorithm.adv_estimator") == "gae" if enabled is None else bool(enabled)

    @property
    def has_a_reference(self) -> bool:
        """Whether there is a reference model; verl/trainer/ppo/utils.py: need_reference_policy."""
        return self.on("algorithm.use_kl_in_reward") or self.on("actor_rollout_ref.actor.use_kl_loss")

    def engine(self, role: str) -> str:
        """The key of the FSDP engine of ``role``: verl moved the critic's in 0.8."""
        places = (f"{role}.fsdp", f"{role}.fsdp_config", f"{role}.model.fsdp_config")
        return next((place for place in places if self.has(place)), places[0])

    @property
    def by_fsdp(self) -> bool:
        """Whether the actor is trained by one of verl's FSDP engines."""
        return str(self.get("actor_rollout_ref.actor.strategy")).startswith("fsdp")


@dataclass(frozen=True)
class Model:
    """A model by its config.json; ``positions`` is the longest sequence that it was made for."""

    parameters: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    positions: int | None
    kv_bytes_per_token: int


@dataclass(frozen=True)
class Facts:
    """What a configuration does not say; memory in bytes, None for what nobody knows.

    ``wandb`` is whether this account can log to Weights & Biases, ``engines`` the rollout engines that the image has,
    ``rows`` how many the training data has.
    """

    gpu_memory: int | None = None
    node_memory: int | None = None
    wandb: bool = False
    engines: tuple[str, ...] | None = None
    model: Model | None = None
    rows: int | None = None
