"""``actor_rollout_ref.rollout.name=hf``: rollouts by transformers' ``generate``, one replica per training rank.

It implements verl's server mode (RolloutReplica, server actor, BaseRollout adapter); agent loop, load balancer,
TransferQueue, weight sync and trainer are verl's, unchanged.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import HFModelConfig
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

BATCH_WAIT_S = 0.05
"""How long the first request waits for others to join its batch."""
BATCH_SIZE = 64

Tokens = tuple[list[int], list[float]]
"""Generated ids up to and including the end token, and the log-probability of each."""


@dataclass(frozen=True)
class Request:
    """One prompt with its sampling parameters; a temperature of 0 selects the most likely token."""

    prompt_ids: Sequence[int]
    temperature: float
    top_p: float
    top_k: int

    @classmethod
    def from_sampling(cls, prompt_ids: Sequence[int], params: Mapping[str, Any]) -> Request:
        """Read verl's sampling parameters, of which this engine supports three."""
        return cls(prompt_ids, params["temperature"], params["top_p"], params["top_k"])


class TextGenerator:
    """A model in float32 that samples batches of requests."""

    def __init__(self, model_path: str, tokenizer: Any, *, max_new_tokens: int) -> None:
        from transformers import AutoModelForCausalLM  # late: the heaviest import, needed only in this actor

        self.model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
        self.pad, self.end = tokenizer.pad_token_id, tokenizer.eos_token_id
        self.max_new_tokens = max_new_tokens

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Load weights. Raises KeyError for unknown or missing names."""
        missing, unexpected = self.model.load_state_dict(state, strict=False)
        tied = set(getattr(self.model, "_tied_weights_keys", None) or ())
        if unexpected or set(missing) - tied:
            raise KeyError(f"weights do not fit the model: {sorted(unexpected)} unknown, {sorted(missing)} missing")

    def generate(self, requests: Sequence[Request]) -> list[Tokens]:
        """Return the answers in order; requests with equal sampling parameters share a batch."""
        batches: dict[tuple[float, float, int], list[int]] = defaultdict(list)
        for index, request in enumerate(requests):
            batches[(request.temperature, request.top_p, request.top_k)].append(index)
        answers: dict[int, Tokens] = {}
        for sampling, indices in batches.items():
            answers.update(zip(indices, self._batch([requests[index].prompt_ids for index in indices], *sampling)))
        return [answers[index] for index in range(len(requests))]

    @torch.no_grad()
    def _batch(self, prompts: Sequence[Sequence[int]], temperature: float, top_p: float, top_k: int) -> list[Tokens]:
        width = max(map(len, prompts))
        padding = [width - len(prompt) for prompt in prompts]
        ids = torch.tensor([[self.pad] * pad + list(prompt) for pad, prompt in zip(padding, prompts)])
        mask = torch.tensor([[0] * pad + [1] * (width - pad) for pad in padding])
        sampling = (
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
            **sampling,
        )
        new = output.sequences[:, width:]
        scores = torch.stack([score.float().log_softmax(-1) for score in output.scores], 1)
        log_probs = scores.gather(-1, new[..., None])[..., 0]
        return [self._until_end(row, probs) for row, probs in zip(new.tolist(), log_probs.tolist())]

    def _until_end(self, ids: list[int], log_probs: list[float]) -> Tokens:
        length = ids.index(self.end) + 1 if self.end in ids else len(ids)
        return ids[:length], log_probs[:length]


class HfServer:
    """A Ray actor that generates for the agent loop and receives new weights from its trainer rank."""

    def __init__(self, config: Any, model_config: Any) -> None:
        model: HFModelConfig = omega_conf_to_dataclass(model_config, dataclass_type=HFModelConfig)
        self.generator = TextGenerator(model.local_path, model.tokenizer, max_new_tokens=config.response_length)
        self.global_steps: int | None = None
        self.waiting: asyncio.Queue[tuple[Request, asyncio.Future[Any]]] | None = None

    def address(self) -> str:
        return f"{ray.util.get_node_ip_address()}:{os.getpid()}"

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **media: Any
    ) -> TokenOutput:
        if self.waiting is None:
            self.waiting = asyncio.Queue()
            self.serving = asyncio.create_task(self._serve(self.waiting))
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await self.waiting.put((Request.from_sampling(prompt_ids, sampling_params), answer))
        token_ids, log_probs = await answer
        return TokenOutput(
            token_ids=token_ids,
            log_probs=log_probs,
            stop_reason="completed",
            num_preempted=0,
            extra_fields={"global_steps": self.global_steps},
        )

    async def _serve(self, waiting: asyncio.Queue[tuple[Request, asyncio.Future[Any]]]) -> None:
        while True:
            batch = [await waiting.get()]
            await asyncio.sleep(BATCH_WAIT_S)
            while not waiting.empty() and len(batch) < BATCH_SIZE:
                batch.append(waiting.get_nowait())
            try:
                answers = await asyncio.to_thread(self.generator.generate, [request for request, _ in batch])
            except Exception as error:  # passed on to the callers, which wait for an answer
                for _, answer in batch:
                    answer.set_exception(error)
                continue
            for (_, answer), tokens in zip(batch, answers):
                answer.set_result(tokens)

    async def update_weights(self, references: list[Any], global_steps: int | None) -> None:
        self.generator.load(await references[0])
        self.global_steps = global_steps

    async def _nothing(self, *args: Any, **kwargs: Any) -> None: ...

    wake_up = sleep = abort_all_requests = resume_generation = clear_kv_cache = _nothing
    release_kv_cache = resume_kv_cache = start_profile = stop_profile = _nothing


class HfReplica(RolloutReplica):
    """A replica with one server, on the node of its first worker."""

    async def launch_servers(self) -> None:
        node_id = await self.workers[0].__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())
        server = (
            ray.remote(HfServer)
            .options(
                name=_server_name(self.replica_rank),
                num_cpus=0,
                max_concurrency=self.max_concurrency,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node_id, soft=False),
            )
            .remote(self.config, self.model_config)
        )
        self.servers = [server]
        self._server_handle, self._server_address = server, await server.address.remote()


class HfServerAdapter(BaseRollout):
    """The trainer rank's adapter, which sends its weights to the server of the same rank."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh)
        self.replica_rank = int(os.environ["RANK"]) if replica_rank == -1 else replica_rank
        self.is_leader_rank = True

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(
        self,
        weights: Generator[tuple[str, torch.Tensor], None, None],
        wire_format: str = "named_tensors",
        global_steps: int | None = None,
        **kwargs: Any,
    ) -> None:
        if wire_format != "named_tensors":
            raise NotImplementedError(f"rollout hf needs named tensors, but verl sends {wire_format}")
        state = {name: tensor.detach().to("cpu", torch.float32).clone() for name, tensor in weights}
        server = ray.get_actor(_server_name(self.replica_rank))
        await server.update_weights.remote([ray.put(state)], global_steps)


def _server_name(replica_rank: int) -> str:
    return f"hf_server_{replica_rank}"


_ROLLOUT_REGISTRY[("hf", "async")] = f"{__name__}.{HfServerAdapter.__name__}"
RolloutReplicaRegistry.register("hf", lambda: HfReplica)
