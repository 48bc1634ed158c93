"""Rollouts of vLLM alone: tokens per second of LLM.generate with the batch and lengths of a training's rollout.

    python3 bench/gpu/rollout.py --model FOLDER --prompts 64 --answers 5 --tokens 1024 --max-num-seqs 256

The settings are those that verl passes to its engine, except that no text is made of the tokens. The prompts are random
tokens with GSM8K's lengths, new ones in every repetition. Prints one line of JSON, and writes it to --out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.gpu.training_inputs import MAX_PROMPT, MEAN_PROMPT

SHORTEST_PROMPT, FIRST_TOKEN, LAST_TOKEN = 80, 1000, 100000


def make_prompts(count: int, seed: int) -> list[list[int]]:
    """Return random tokens with about the lengths of training_inputs.write_questions."""
    chance = random.Random(seed)  # noqa: S311 - not a secret
    lengths = [
        SHORTEST_PROMPT
        + min(int(chance.gammavariate(2, (MEAN_PROMPT - SHORTEST_PROMPT) / 2)), MAX_PROMPT - SHORTEST_PROMPT)
        for _ in range(count)
    ]
    return [[chance.randint(FIRST_TOKEN, LAST_TOKEN) for _ in range(length)] for length in lengths]


def measure(given: argparse.Namespace) -> dict[str, Any]:
    vllm = importlib.import_module("vllm")  # late: the arguments are read without it

    began = time.monotonic()
    engine = vllm.LLM(
        model=given.model,
        dtype="bfloat16",
        max_model_len=2048,
        max_num_seqs=given.max_num_seqs,
        max_num_batched_tokens=8192,
        gpu_memory_utilization=given.memory,
        tensor_parallel_size=1,
        enable_prefix_caching=True,
        enable_sleep_mode=True,
        logprobs_mode="processed_logprobs",
        compilation_config={"cudagraph_mode": "FULL_AND_PIECEWISE"},
    )
    started = time.monotonic() - began
    sampling = vllm.SamplingParams(
        temperature=1.0, top_p=1.0, top_k=-1, max_tokens=given.tokens, ignore_eos=True, logprobs=0, detokenize=False
    )
    seconds, tokens = [], []
    for repetition in range(given.repetitions + 1):  # the first is a warm-up
        prompts = [prompt for prompt in make_prompts(given.prompts, repetition) for _ in range(given.answers)]
        began = time.monotonic()
        answers = engine.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False)
        seconds.append(time.monotonic() - began)
        tokens.append(sum(len(answer.outputs[0].token_ids) for answer in answers))
    rates = [count / each for count, each in zip(tokens[1:], seconds[1:])]
    return {
        "tokens_per_s": statistics.median(rates),
        "rates": rates,
        "seconds": seconds,
        "tokens_of_batches": tokens,
        "start_s": started,
    }


def run(parser: argparse.ArgumentParser, measure: Callable[[argparse.Namespace], dict[str, Any]]) -> None:
    """Print one line of JSON of what ``measure`` returns for the arguments, and of these; write it to --out."""
    parser.add_argument("--out", type=Path, help="file of the result")
    given = parser.parse_args()
    arguments = {name: value for name, value in vars(given).items() if name != "out"}
    result = json.dumps(measure(given) | arguments)
    print(result, flush=True)
    if given.out:
        given.out.write_text(result + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder or hub name")
    parser.add_argument("--prompts", type=int, default=64, help="different prompts of a batch")
    parser.add_argument("--answers", type=int, default=5, help="answers to each prompt")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens of an answer")
    parser.add_argument("--max-num-seqs", type=int, default=256, help="answers that the engine generates at once")
    parser.add_argument("--memory", type=float, default=0.6, help="the engine's share of the GPU's memory")
    parser.add_argument("--repetitions", type=int, default=3, help="measured batches, after one to warm up")
    run(parser, measure)


if __name__ == "__main__":
    main()
