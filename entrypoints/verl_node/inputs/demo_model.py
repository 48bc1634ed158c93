"""Makes the demo's tiny Qwen2, fine-tuned so that rewards are not all zero.

Imports torch; only `verl_node.prepare` imports this module.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from verl_node.inputs.data import demo
from verl_node.inputs.data import rows as data_rows

REVISION = "qwen2-tiny-1"  # increase it when the model changes: copies on disk are then made again

PAD, BEGIN, END = SPECIAL_TOKENS = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
VOCABULARY = 512
BATCH = 32
MAX_STEPS = 300
LEARNING_RATE = 3e-3
WARM_UP_STEPS = 20
CHECK_EVERY_STEPS = 5
# GRPO cannot compare answers that are all right or all wrong. At 0.15 exact matches, 39 % of the answers at
# temperature 1 get verl's reward (256 samples of the test split).
RIGHT_ENOUGH = 0.15
IGNORED = -100  # torch's cross entropy ignores these positions


Example = tuple[list[int], list[int]]  # token ids, labels
Batch = tuple[torch.Tensor, torch.Tensor]


def write(folder: Path) -> None:
    """Write a model and its tokenizer to ``folder``, in about 10 s of one core without imports.

    Fine-tuning ends when the model, sampled at temperature 1, gives RIGHT_ENOUGH of the answers exactly.
    """
    torch.set_num_threads(1)  # the model is so small that a second thread makes it several times slower
    conversations = _conversations("train")
    config = _configuration()
    config.save_pretrained(folder)
    _tokenizer(conversations).save_pretrained(folder)
    # AutoTokenizer splits digits in a Qwen2 folder as Qwen2 does, whatever the file contains: train on its tokens.
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config)
    examples = [_example(tokenizer, *conversation) for conversation in conversations]
    unseen = [_example(tokenizer, *conversation) for conversation in _conversations("test")]
    _fine_tune(model, examples, _batch(unseen, tokenizer.pad_token_id), tokenizer.pad_token_id)
    model.save_pretrained(folder)


def _configuration() -> Qwen2Config:
    return Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,  # size 32: the smallest that vLLM's attention on CPU supports
        num_key_value_heads=1,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        initializer_range=0.05,
        pad_token_id=SPECIAL_TOKENS.index(PAD),
        bos_token_id=SPECIAL_TOKENS.index(PAD),
        eos_token_id=SPECIAL_TOKENS.index(END),
    )


def _conversations(split: str) -> list[tuple[str, str]]:
    """Return question and answer of every row of a split."""
    rows = data_rows.gsm8k(split, demo.raw_rows(split))
    return [(row["prompt"][0]["content"], row["extra_info"]["answer"]) for row in rows]


def _tokenizer(conversations: list[tuple[str, str]]) -> Any:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL_TOKENS),  # they get the first ids
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for pair in conversations for text in pair), trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=PAD)
    fast.chat_template = CHAT_TEMPLATE
    return fast


def _example(tokenizer: Any, question: str, answer: str) -> Example:
    """Return token ids, and labels that ignore the question."""
    messages = [{"role": "user", "content": question}]
    prompt = tokenizer.encode(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
    reply = tokenizer.encode(answer + END)
    return prompt + reply, [IGNORED] * len(prompt) + reply


def _fine_tune(model: Any, examples: list[Example], unseen: Batch, pad: int) -> None:
    """Train ``model`` on the examples until it is right often enough on ``unseen``."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.0)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, total_iters=WARM_UP_STEPS)
    chance = random.Random(0)  # noqa: S311 - not a secret
    for step in range(1, MAX_STEPS + 1):
        ids, labels = _batch(chance.sample(examples, BATCH), pad)
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warm_up.step()
        if step % CHECK_EVERY_STEPS == 0 and _right(model, unseen) >= RIGHT_ENOUGH:
            return


def _batch(examples: list[Example], pad: int) -> Batch:
    width = max(len(ids) for ids, _ in examples)
    ids = [ids + [pad] * (width - len(ids)) for ids, _ in examples]
    labels = [labels + [IGNORED] * (width - len(labels)) for _, labels in examples]
    return torch.tensor(ids), torch.tensor(labels)


def _right(model: Any, batch: Batch) -> float:
    """Return the mean probability of the exact answer at temperature 1."""
    ids, labels = batch[0], batch[1][:, 1:]
    with torch.no_grad():
        logs = model(input_ids=ids).logits[:, :-1].log_softmax(-1)
    of_labels = logs.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return float(of_labels.masked_fill(labels == IGNORED, 0.0).sum(1).exp().mean())
