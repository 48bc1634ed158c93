"""Effect of rounded frequencies of rotary embeddings on a model's probabilities, with torch and transformers.

    python3 bench/gpu/rotary_frequencies.py 7b [TOKENS]

A Qwen2 of that shape with random weights computes the same tokens twice in bfloat16, with its frequencies in float32 as
in transformers and vLLM, and rounded to bfloat16 as in a model that verl converts as a whole. No GPU is needed, and one
layer is in memory at a time: 7b takes 3 GiB and minutes on two cores. Prints one line of JSON: the mean log-probability
of tokens that the first samples, by each, and the correlation of these tokens' probabilities.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.gpu.training_inputs import COMMON, LAST_NORM, SHAPES

DEVIATION = 0.02  # of random weights, Qwen2's initializer_range
SAMPLES = 64  # tokens for each position


def measure(shape: str, tokens: int) -> dict[str, float]:
    torch = importlib.import_module("torch")
    qwen2 = importlib.import_module("transformers.models.qwen2.modeling_qwen2")
    config = importlib.import_module("transformers").Qwen2Config(**COMMON, **SHAPES[shape])
    config._attn_implementation = "sdpa"
    chance = torch.Generator().manual_seed(0)

    def weights(*sizes: int) -> Any:
        return torch.empty(*sizes).normal_(0, DEVIATION, generator=chance).bfloat16()

    embedding = weights(config.vocab_size, config.hidden_size)
    position = torch.arange(tokens)[None]
    mask = torch.full((tokens, tokens), torch.finfo(torch.bfloat16).min, dtype=torch.bfloat16).triu(1)[None, None]
    exact, rounded = (qwen2.Qwen2RotaryEmbedding(config) for _ in range(2))
    rounded.inv_freq = rounded.inv_freq.bfloat16().float()
    hidden = [embedding[torch.randint(0, config.vocab_size, (1, tokens), generator=chance)]] * 2
    with torch.no_grad():
        for number in range(config.num_hidden_layers):
            layer = qwen2.Qwen2DecoderLayer(config, number).bfloat16()
            for name, parameter in layer.named_parameters():
                if name.endswith("bias"):
                    parameter.zero_()
                elif "norm" not in name:  # those are 1
                    parameter.copy_(weights(*parameter.shape))
            embeddings = [rotary(state, position) for rotary, state in zip((exact, rounded), hidden)]
            hidden = [
                layer(state, attention_mask=mask, position_embeddings=each) for state, each in zip(hidden, embeddings)
            ]
        head = embedding if config.tie_word_embeddings else weights(config.vocab_size, config.hidden_size)
        size = (config.hidden_size,)
        normed = [torch.nn.functional.rms_norm(state[0].float(), size, eps=config.rms_norm_eps) for state in hidden]
        by_each = [torch.log_softmax(LAST_NORM * state @ head.float().T, -1) for state in normed]
    sampled = torch.multinomial(by_each[0].exp(), SAMPLES, replacement=True, generator=chance)
    engine, trainer = (log.gather(1, sampled).flatten() for log in by_each)
    return {
        "tokens": tokens,
        "float32": round(engine.mean().item(), 3),
        "bfloat16": round(trainer.mean().item(), 3),
        "correlation": round(torch.corrcoef(torch.stack([engine.exp(), trainer.exp()]))[0, 1].item(), 3),
    }


def main() -> None:
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1130)))


if __name__ == "__main__":
    main()
