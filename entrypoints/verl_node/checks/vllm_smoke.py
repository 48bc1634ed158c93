"""`python3 -m verl_node.checks.vllm_smoke GPUS FILE`: generates with vLLM on the smallest model that it supports.

A separate process, since vLLM starts others and may hang. The model has two layers without weights or a tokenizer:
nothing is downloaded, and the test covers vLLM itself, its kernels, its memory and the GPUs together.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from verl_node.reporting.verdict import write_by_rename

TOKENS = 8
_PROMPT = list(range(10, 18))
_CONTEXT = 64
_SHARE = 0.1  # of a GPU's memory: with 16 GB and more, the model, CUDA and a cache fit into it
_HEADS = 8  # of size 64, which every attention of vLLM supports; they divide by 1, 2, 4 and 8 GPUs
_CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "vocab_size": 1024,
    "hidden_size": 64 * _HEADS,
    "intermediate_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": _HEADS,
    "num_key_value_heads": _HEADS,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def main() -> int:
    """Write FILE, one JSON object. vLLM's exceptions are not caught.

    The model is beside FILE, since the check kills this process as soon as FILE exists, and removes FILE's folder.
    """
    gpus, file = int(sys.argv[1]), Path(sys.argv[2])
    if importlib.util.find_spec("verl") is not None:
        importlib.import_module("verl")  # also imports VERL_USE_EXTERNAL_MODULES, as in a worker
    # verl calls torch.cuda.is_available() on import, after which CUDA cannot be initialised in a forked process. vLLM
    # chooses spawn itself only if CUDA is initialised already.
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
    # In training, vLLM returns log-probabilities after sampling (processed_logprobs), for which it does not use
    # FlashInfer's sampler. That one needs a package that a training does without, and may compile CUDA code.
    os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        (Path(folder) / "config.json").write_text(json.dumps(_CONFIG))
        write_by_rename(file, json.dumps(generate(importlib.import_module("vllm"), folder, gpus)))
    return 0


def generate(vllm: Any, model: str, gpus: int) -> dict[str, Any]:
    """Return the seconds of start and generation, and the numbers of tokens and GPUs."""
    tensor_parallel = max(size for size in (1, 2, 4, 8) if size <= max(1, gpus))
    began = time.monotonic()
    engine = vllm.LLM(
        model=model,
        load_format="dummy",
        skip_tokenizer_init=True,
        max_model_len=_CONTEXT,
        max_num_batched_tokens=_CONTEXT,
        max_num_seqs=1,
        tensor_parallel_size=tensor_parallel,
        gpu_memory_utilization=_SHARE,
        enforce_eager=True,
    )
    started = time.monotonic()
    sampling = vllm.SamplingParams(max_tokens=TOKENS, temperature=0.0, ignore_eos=True, detokenize=False)
    answers = engine.generate([{"prompt_token_ids": _PROMPT}], sampling)
    return {
        "version": str(getattr(vllm, "__version__", "unknown")),
        "gpus": tensor_parallel,
        "start_s": round(started - began, 1),
        "generate_s": round(time.monotonic() - started, 2),
        "tokens": len(answers[0].outputs[0].token_ids),
    }


if __name__ == "__main__":
    sys.exit(main())
