"""The number of GPUs that this node gives to the job."""

from __future__ import annotations

from collections.abc import Mapping

from verl_node.errors import BadSettings


def of_step(environ: Mapping[str, str]) -> int | None:
    """Return the GPUs of this node in the Slurm step, None outside of an allocation with GPUs.

    SLURM_GPUS_ON_NODE of the step is right for --gres, --gpus and --gpus-per-task alike; SLURM_GPUS_PER_NODE may be
    missing and may carry a type (``mi300x:8``), so it only cross-checks. Raises BadSettings where the two disagree.
    """
    on_node = _count(environ, "SLURM_GPUS_ON_NODE")
    per_node = _count(environ, "SLURM_GPUS_PER_NODE")
    if on_node is not None and per_node is not None and on_node != per_node:
        raise BadSettings(
            f"SLURM_GPUS_ON_NODE is {on_node}, but SLURM_GPUS_PER_NODE is {environ['SLURM_GPUS_PER_NODE']!r}: "
            f"the step did not get every GPU of its job.",
            fix="Start the step with the GPUs of the job (srun without --gres or --gpus of its own).",
        )
    return per_node if on_node is None else on_node


def _count(environ: Mapping[str, str], name: str) -> int | None:
    """Read ``8``, ``mi300x:8`` or ``a100:4,h100:4`` (their sum)."""
    value = environ.get(name, "").strip()
    if not value:
        return None
    try:
        return sum(int(part.rpartition(":")[2]) for part in value.split(","))
    except ValueError:
        raise BadSettings(
            f"{name} is {value!r}, which is neither a number nor a type and a number such as mi300x:8.",
            fix="Ask Slurm for GPUs with --gpus-per-node=8 or --gres=gpu:mi300x:8.",
        ) from None
