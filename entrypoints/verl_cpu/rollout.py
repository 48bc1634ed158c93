"""``actor_rollout_ref.rollout.name=hf``: rollouts by transformers' ``generate``, one replica a training rank.

It fills verl's own server-mode contract (RolloutReplica, server actor, BaseRollout adapter), so that the agent loop,
load balancer, TransferQueue, weight sync and trainer are verl's, unchanged.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from typing import Any

import ray
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import HFModelConfig
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

from verl_cpu.generation import Generator as TextGenerator
from verl_cpu.generation import Request

BATCH_WAIT_S = 0.05
"""How long a first request waits for others to share its batch."""
BATCH_SIZE = 64


class HfServer:
    """A Ray actor that generates for the agent loop and takes new weights from its trainer rank."""

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
            except Exception as error:  # whatever it is belongs to the callers, who wait for it
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
    """Puts its one server beside the first of its workers."""

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
    """The trainer rank's side: sends its weights to the server of the same rank."""

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
            raise NotImplementedError(f"rollout hf takes named tensors; verl sends {wire_format}")
        state = {name: tensor.detach().to("cpu", torch.float32).clone() for name, tensor in weights}
        server = ray.get_actor(_server_name(self.replica_rank))
        await server.update_weights.remote([ray.put(state)], global_steps)


def _server_name(replica_rank: int) -> str:
    return f"hf_server_{replica_rank}"


_ROLLOUT_REGISTRY[("hf", "async")] = f"{__name__}.{HfServerAdapter.__name__}"
RolloutReplicaRegistry.register("hf", lambda: HfReplica)
