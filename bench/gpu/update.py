"""The update of verl's actor alone: seconds of the forward and backward pass of a micro batch, without FSDP and Ray.

    python3 bench/gpu/update.py --model FOLDER --rows 8 --tokens 1024

The model has random weights in bfloat16, the forward function that verl gives it for a training without flash-attn
(verl_node/training/attention.py) and gradient checkpointing. Rows are random tokens with GSM8K's lengths, padded to the
longest as verl does. Neither the optimizer's step nor a reference is part of it. Prints one line of JSON, and writes it
to --out.
"""

from __future__ import annotations

import argparse
import importlib
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.gpu.rollout import FIRST_TOKEN, LAST_TOKEN, make_prompts, run
from bench.gpu.training_result import PEAK_FLOPS, update_flops

GIB = 2**30
WARM_UP = 2


def make_rows(count: int, tokens: int, seed: int = 0) -> list[list[int]]:
    """Return prompts with an answer of random tokens each."""
    chance = random.Random(seed)  # noqa: S311 - not a secret
    return [
        prompt + [chance.randint(FIRST_TOKEN, LAST_TOKEN) for _ in range(tokens)]
        for prompt in make_prompts(count, seed)
    ]


def build(given: argparse.Namespace, device: str) -> Any:
    """Return the model with verl's forward function."""
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    patches = importlib.import_module("verl.models.transformers.monkey_patch")
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.from_pretrained(given.model), dtype=torch.bfloat16, attn_implementation="sdpa"
        )
    patches.apply_monkey_patch(model, use_remove_padding=False, use_fused_kernels=True, fused_kernels_backend="torch")
    if given.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.train()


def make_pass(model: Any, rows: list[list[int]], device: str) -> Callable[[], None]:
    """Return a function that computes the gradients of the rows' mean log-probability."""
    torch = importlib.import_module("torch")
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows], device=device)
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=device).bool()
    positions = torch.arange(longest, device=device).expand(len(rows), -1) * mask

    def update() -> None:
        found = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            temperature=1.0,
            return_dict=True,
            use_cache=False,
        )
        (found.log_probs.float() * mask).sum().div(mask.sum()).backward()
        model.zero_grad(set_to_none=True)

    return update


def measure(given: argparse.Namespace) -> dict[str, Any]:
    cuda = importlib.import_module("torch").cuda
    device = "cuda" if cuda.is_available() else "cpu"  # a trial without GPUs
    wait = cuda.synchronize if device == "cuda" else lambda: None
    rows = make_rows(given.rows, given.tokens)
    model = build(given, device)
    update = make_pass(model, rows, device)
    seconds = []
    for repetition in range(WARM_UP + given.repetitions):
        wait()
        began = time.perf_counter()
        update()
        wait()
        if repetition >= WARM_UP:
            seconds.append(time.perf_counter() - began)
    tokens = sum(map(len, rows))
    flops = update_flops(
        model.config.to_dict(),
        {
            "perf/total_num_tokens": tokens,
            "prompt_length/mean": tokens / len(rows) - given.tokens,
            "response_length/mean": given.tokens,
        },
    )
    return {
        "tokens_per_s": tokens / statistics.median(seconds),
        "mfu": flops / statistics.median(seconds) / PEAK_FLOPS,
        "seconds": seconds,
        "tokens_of_batch": tokens,
        "highest_gib": cuda.max_memory_allocated() / GIB if device == "cuda" else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder or hub name; only its configuration is read")
    parser.add_argument("--rows", type=int, default=8, help="answers of a micro batch")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens of an answer")
    parser.add_argument("--checkpointing", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--repetitions", type=int, default=5, help=f"measured passes, after {WARM_UP} to warm up")
    run(parser, measure)


if __name__ == "__main__":
    main()
