"""Inputs of bench/gpu/training.py: random weights in the shapes of Qwen2 models, and questions of GSM8K's lengths.

    python3 bench/gpu/training_inputs.py FOLDER 0.5b 1.5b

A random model computes as much as the real one, and its answers mean nothing. Its tokenizer has as many tokens as
Qwen2's: the bytes, and words of three syllables, so that one word of a question is one token.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

# Of config.json in Qwen/Qwen2-0.5B-Instruct, Qwen2-1.5B-Instruct and Qwen2-7B-Instruct.
COMMON = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "pad_token_id": 151643,
}
NAMES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
    "tie_word_embeddings",
)
SHAPES: dict[str, dict[str, Any]] = {
    "0.5b": dict(zip(NAMES, (896, 24, 14, 2, 4864, 151936, True))),
    "1.5b": dict(zip(NAMES, (1536, 28, 12, 2, 8960, 151936, True))),
    "7b": dict(zip(NAMES, (3584, 28, 28, 4, 18944, 152064, False))),
    "tiny": dict(zip(NAMES, (64, 2, 2, 1, 128, 151936, True))),  # not a Qwen2: for a trial without a GPU
}

PAD, BEGIN, END = SPECIAL_TOKENS = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
BYTES = 256
TOKENS = 151643  # before the special tokens, as Qwen2's
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
BLANK = "Ġ"  # how byte-level BPE writes a blank
CONSONANTS, VOWELS = "bcdfghjklmnpqrstvwxyz", "aeiou"
SYLLABLES = [consonant + vowel for consonant, vowel in product(CONSONANTS, VOWELS)]

# With weights as in a new Qwen2 all tokens are about equally likely. This weight of the last norm gives the logits a
# standard deviation of about 2.4, so that a wrong log-probability shows.
LAST_NORM = 4.0

# Tokens of GSM8K's prompts with Qwen2's tokenizer in verl's log: mean 102.5, 63 to 256
# (https://github.com/verl-project/verl/issues/1208). Ours begin at 75, because the instruction has more tokens.
MEAN_PROMPT, MAX_PROMPT = 102.5, 256
QUESTIONS = {"train": 4096, "test": 64}


def merges() -> Iterator[tuple[str, str]]:
    """Yield pairs of tokens, in the order in which BPE joins them: a syllable, then words from their start."""
    yield from product(CONSONANTS, VOWELS)
    starts = [BLANK]
    for _ in range(3):
        yield from product(starts, SYLLABLES)
        starts = [start + syllable for start, syllable in product(starts, SYLLABLES)]


def make_tokenizer(vocabulary_size: int) -> Any:
    """Return a tokenizer of Qwen2's kind; each number that a random model may sample has a token."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = list(islice(merges(), TOKENS - BYTES))
    vocabulary = {token: number for number, token in enumerate([*alphabet, *(a + b for a, b in pairs)])}
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs))
    tokenizer.normalizer = normalizers.NFC()
    # Words with the blank before them; single digits; runs of anything else.
    words = Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(words, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    unused = range(vocabulary_size - TOKENS - len(SPECIAL_TOKENS))
    tokenizer.add_tokens([AddedToken(f"<|unused{number}|>", normalized=False) for number in unused])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=PAD)
    fast.chat_template = CHAT_TEMPLATE
    return fast


def write_model(folder: Path, shape: str) -> None:
    """Write configuration, tokenizer and random weights in bfloat16; on a GPU it takes seconds."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen2ForCausalLM(Qwen2Config(**COMMON, **SHAPES[shape]))
    torch.nn.init.constant_(model.model.norm.weight, LAST_NORM)
    model.to(torch.bfloat16).save_pretrained(folder)
    make_tokenizer(SHAPES[shape]["vocab_size"]).save_pretrained(folder)


def write_questions(folder: Path, tokenizer: Any) -> None:
    """Write raw rows in GSM8K's format to ``folder``/train.jsonl and test.jsonl; the answers mean nothing."""
    without_words = len(prompt_tokens(tokenizer, ""))
    pairs = islice(merges(), TOKENS - BYTES)
    words = [word[1:] for word in (first + second for first, second in pairs) if len(word) == len(BLANK) + 6]
    for split, count in QUESTIONS.items():
        chance = random.Random(split)  # noqa: S311 - not a secret
        rows = []
        for _ in range(count):
            extra = chance.gammavariate(2, max(MEAN_PROMPT - without_words - 1, 2) / 2)
            number = 1 + min(int(extra), MAX_PROMPT - without_words - 5)
            question = " ".join(chance.choice(words) for _ in range(number))
            rows.append({"question": question, "answer": f"#### {chance.randint(1, 99)}"})
        (folder / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def prompt_tokens(tokenizer: Any, question: str) -> list[int]:
    """Return the prompt's tokens as verl's rollout makes them of a row of gsm8k."""
    entrypoints = str(Path(__file__).resolve().parents[2] / "entrypoints")
    if entrypoints not in sys.path:
        sys.path.insert(0, entrypoints)
    from verl_node.inputs.data import rows

    row = rows.gsm8k("train", [{"question": question, "answer": "#### 0"}])[0]
    text = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False)
    return list(tokenizer.encode(text, add_special_tokens=False))


def make(folder: Path, shapes: list[str]) -> None:
    """Make the models and the raw data set that do not exist yet: ``folder``/models/<shape>, ``folder``/raw/gsm8k."""
    for shape in shapes:
        make_once(folder / "models" / shape, partial(write_model, shape=shape))
    make_once(folder / "raw" / "gsm8k", lambda target: write_questions(target, make_tokenizer(TOKENS)))


def make_once(folder: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a folder, which exists only when it is complete."""
    if folder.exists():
        return
    temporary = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    write(temporary)
    temporary.rename(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2:])
