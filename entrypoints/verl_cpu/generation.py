"""Batched sampling with transformers on CPU: token ids in, token ids and their log-probabilities out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Request:
    """One prompt and how to sample from it; a temperature of 0 takes the likeliest token."""

    prompt_ids: Sequence[int]
    temperature: float
    top_p: float
    top_k: int

    @classmethod
    def from_sampling(cls, prompt_ids: Sequence[int], params: Mapping[str, Any]) -> Request:
        """From verl's sampling parameters, of which this engine honours three."""
        return cls(prompt_ids, params["temperature"], params["top_p"], params["top_k"])


Tokens = tuple[list[int], list[float]]
"""Generated ids up to and with the end token, and the log-probability of each."""


class Generator:
    """A model in float32 that answers batches of requests.

    Raises:
        KeyError: new weights hold a name that the model lacks, or lack one that it has.
    """

    def __init__(self, model_path: str, tokenizer: Any, *, max_new_tokens: int) -> None:
        from transformers import AutoModelForCausalLM  # the heaviest import, and needed in this actor only

        self.model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
        self.pad, self.end = tokenizer.pad_token_id, tokenizer.eos_token_id
        self.max_new_tokens = max_new_tokens

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        missing, unexpected = self.model.load_state_dict(state, strict=False)
        tied = set(getattr(self.model, "_tied_weights_keys", None) or ())
        if unexpected or set(missing) - tied:
            raise KeyError(f"weights do not fit the model: {sorted(unexpected)} unknown, {sorted(missing)} missing")

    def generate(self, requests: Sequence[Request]) -> list[Tokens]:
        """Answers in the order of ``requests``; those that sample alike share a batch."""
        alike: dict[tuple[float, float, int], list[int]] = defaultdict(list)
        for index, request in enumerate(requests):
            alike[(request.temperature, request.top_p, request.top_k)].append(index)
        answers: dict[int, Tokens] = {}
        for sampling, indices in alike.items():
            answers.update(zip(indices, self._batch([requests[index].prompt_ids for index in indices], *sampling)))
        return [answers[index] for index in range(len(requests))]

    @torch.no_grad()
    def _batch(self, prompts: Sequence[Sequence[int]], temperature: float, top_p: float, top_k: int) -> list[Tokens]:
        width = max(map(len, prompts))
        padding = [width - len(prompt) for prompt in prompts]
        ids = torch.tensor([[self.pad] * pad + list(prompt) for pad, prompt in zip(padding, prompts)])
        mask = torch.tensor([[0] * pad + [1] * (width - pad) for pad in padding])
        how = (
            {"do_sample": True, "temperature": temperature, "top_p": top_p, "top_k": max(top_k, 0)}
            if temperature > 0
            else {"do_sample": False}
        )
        output = self.model.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=self.max_new_tokens,
            pad_token_id=self.pad,
            eos_token_id=self.end,
            output_scores=True,
            return_dict_in_generate=True,
            **how,
        )
        new = output.sequences[:, width:]
        scores = torch.stack([score.float().log_softmax(-1) for score in output.scores], 1)
        log_probs = scores.gather(-1, new[..., None])[..., 0]
        return [self._until_end(row, probs) for row, probs in zip(new.tolist(), log_probs.tolist())]

    def _until_end(self, ids: list[int], log_probs: list[float]) -> Tokens:
        length = ids.index(self.end) + 1 if self.end in ids else len(ids)
        return ids[:length], log_probs[:length]
