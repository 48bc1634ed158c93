"""Every message survives its encoding, and a node of another version is refused with both versions in the text."""

from __future__ import annotations

import asyncio
import json
from dataclasses import fields
from typing import Any

import pytest
from verl_node.checks.cluster import Report
from verl_node.checks.result import Outcome
from verl_node.control import client, messages
from verl_node.control.authentication import authenticate
from verl_node.control.channel import UNAUTHENTICATED_LIMIT, Channel
from verl_node.control.messages import Message, decode, encode
from verl_node.errors import PermissionMissing
from verl_node.reporting.events import Event
from verl_node.reporting.verdict import Verdict
from verl_node.supervision import heartbeat

from tests.support.node.channel_rig import TOKEN, Head, identity, join

VERDICT = Verdict(66, "self", "model", "n1", "It has no model.", "Set one.")
OUTCOME = Outcome("memory.swap_is_off", "n1", "warn", seconds=0.5)
EXAMPLES: list[Message] = [
    messages.Challenge("a" * 64),
    messages.Answer("b" * 64, "c" * 64),
    messages.Refused("it is late", "Come earlier."),
    messages.Hello(identity(1)),
    messages.Welcome(1, "key"),
    messages.Resume("key", 1, 2, 3),
    messages.Resumed(3),
    messages.WorkerEvent(Event(1.5, "n1", "join", "end", "", 2.0)),
    messages.ChecksDone(Report("n1", [OUTCOME], {"memory": 5}), 1.5),
    messages.Prepared(),
    messages.MetricsRow({"step": 1, "gpus": [{"utilisation_percent": None}]}),
    messages.StacksWritten(1),
    messages.Failed(VERDICT),
    messages.StartRay("n0:6379", "/tmp/ray", {"HF_HUB_OFFLINE": "1"}),  # noqa: S108
    messages.Formed(),
    messages.Checked(),
    messages.Prepare(["python3"], ["vllm"]),
    messages.Step(0),
    messages.TakeStacks(1),
    messages.JobEnded(VERDICT),
]


def test_every_kind_has_an_example() -> None:
    assert [type(example) for example in EXAMPLES] == list(messages.KINDS.values())
    assert {*messages.TO_HEAD, *messages.TO_WORKER} == {type(example) for example in EXAMPLES[7:]}


@pytest.mark.parametrize("message", EXAMPLES, ids=list(messages.KINDS))
def test_a_message_is_decoded_as_it_was_encoded(message: Message) -> None:
    assert decode(json.loads(encode(message)), type(message)) == message


@pytest.mark.parametrize("cls", [*messages.KINDS.values(), *messages._NESTED.values()])
def test_the_decoder_knows_the_type_of_every_field(cls: Any) -> None:
    assert {str(field.type) for field in fields(cls)} <= messages._JSON_TYPES.keys() | messages._NESTED.keys()


async def greet(port: int, hello: dict[str, Any]) -> Any:
    channel = Channel(*await asyncio.open_connection("127.0.0.1", port, limit=UNAUTHENTICATED_LIMIT), 60)
    await authenticate(channel, TOKEN, head=False)
    channel.send(json.dumps(hello).encode())
    answer = await asyncio.wait_for(channel.receive(), 10)
    channel.abort()
    return answer


@pytest.mark.parametrize(
    ("hello", "version"),
    [
        ({"protocol": messages.PROTOCOL + 1, "identity": {"of": "another form"}, "more": 1}, "4"),
        ({"node_id": 1, "host": "n1"}, "2 or older"),
    ],
    ids=["newer", "older"],
)
def test_a_hello_of_another_version_is_refused_with_both_versions(hello: dict[str, Any], version: str) -> None:
    async def scenario() -> None:
        async with Head() as head:
            answer = await greet(head.port, {"kind": "hello", **hello})

        assert answer["kind"] == "refused"
        assert answer["why"] == f"The worker speaks version {version} of the control protocol, the head version 3."
        assert "same image" in answer["fix"]
        assert head.logged("head version 3")

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_worker_of_another_version_ends_with_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "Hello", lambda node: messages.Hello(node, 4))

    async def scenario() -> None:
        async with Head() as head:
            with pytest.raises(PermissionMissing, match="speaks version 4 of the control protocol, the head version 3"):
                await join(head.port)

    asyncio.run(asyncio.wait_for(scenario(), 30))
    assert heartbeat._beats == set()
