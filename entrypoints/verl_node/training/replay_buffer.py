"""The buffer of answers of verl 0.9's synchronous trainer, which loads it by trainer.v1.sampler.custom_sampler.

verl's own polls every 2 s whether all answers of a step are there, and has no key for that (poll_interval in
verl/trainer/ppo/v1/replay_buffer.py), which costs 1 s of a step on average.
"""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1 import replay_buffer

from verl_node.training.derived_overrides import POLL_S


class ReplayBuffer(replay_buffer.ReplayBuffer):  # type: ignore[misc]
    """verl's, with a shorter interval."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(poll_interval=POLL_S, **arguments)
