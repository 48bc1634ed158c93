"""A control connection may break or be silent: no message is lost or doubled, and only the end of patience is loss."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from verl_node.control import client
from verl_node.control import session as sessions
from verl_node.control.authentication import prove
from verl_node.control.channel import STRANGER_LIMIT, Channel, Message
from verl_node.control.messages import Unreadable
from verl_node.control.session import Session
from verl_node.errors import CheckFailed, ClusterLost, PermissionMissing
from verl_node.reporting.verdict import Verdict
from verl_node.supervision import heartbeat

from tests.support.node.channel_rig import TOKEN, Head, Way, event, free_port, join, soon
from tests.support.paths import CHECKOUT

BEAT_S = 0.05


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Beats twenty times as often, and attempts that end as soon."""
    monkeypatch.setattr(heartbeat, "BEAT_S", BEAT_S)
    monkeypatch.setattr(client, "_OPEN_AGAIN_S", 0.5)
    monkeypatch.setattr(client, "_RESUME_S", 0.5)
    yield
    assert heartbeat._beats == set()


@pytest.fixture(scope="module", autouse=True)
def beating() -> None:
    heartbeat.start(Path("/nonexistent"))


def done(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 30))


async def numbers(session: Session, count: int) -> list[int]:
    """Return the numbers of that many orders."""
    got: list[int] = []
    while len(got) < count:
        message = await session.receive()
        assert message is not None, session.end
        got.append(message["step"])
    return got


def test_messages_both_ways_arrive_once_and_in_order_over_connections_that_are_reset() -> None:
    async def story() -> None:
        async with Head() as head, Way(head.port) as way:
            session = await join(way.port)
            hearing = asyncio.ensure_future(numbers(session, 300))
            for number in range(300):
                session.send("row", row=number)
                head.peers.tell("step", step=number)
                if number % 60 == 30:
                    way.cut()
                await asyncio.sleep(0.005)
            assert await hearing == list(range(300))
            await soon(lambda: len(head.rows) == 300)
            assert head.rows == list(range(300))
            assert way.connections >= 3
            assert head.said("the control connection broke")
            assert head.said("the control connection is back")
            await session.close()

    done(story())


def test_lines_lost_at_random_with_their_connection_are_sent_again() -> None:
    chance = random.Random(1)  # noqa: S311  the same losses every time

    async def story() -> None:
        async with Head(8.0) as head, Way(head.port) as way:

            def lose(line: bytes) -> list[bytes]:
                if chance.random() < 0.05:
                    way.cut()
                    return []
                return [line]

            session = await join(way.port, 8.0)
            way.to_head = way.to_worker = lose
            hearing = asyncio.ensure_future(numbers(session, 100))
            for number in range(100):
                session.send("row", row=number)
                head.peers.tell("step", step=number)
                await asyncio.sleep(0.01)
            assert await hearing == list(range(100))
            await soon(lambda: len(head.rows) == 100)
            assert head.rows == list(range(100))
            way.to_head = way.to_worker = lambda line: [line]
            await session.close()

    done(story())


def test_a_network_that_is_gone_for_less_than_the_patience_costs_nothing() -> None:
    async def story() -> None:
        async with Head(5.0) as head, Way(head.port) as way:
            session = await join(way.port, 5.0)
            way.open = False
            head.peers.tell("step", step=1)
            session.send("row", row=1)
            await asyncio.sleep(3)
            assert head.rows == []
            way.open = True
            assert await numbers(session, 1) == [1]
            await soon(lambda: head.rows == [1])
            assert (session.end, head.peers._failure) == ("", None)
            await session.close()

    done(story())


def test_patience_that_is_over_loses_the_worker_and_the_head() -> None:
    async def story() -> None:
        async with Head(1.0) as head, Way(head.port) as way:
            session = await join(way.port, 1.0)
            session.send("event", event=event("its last"))
            await soon(lambda: bool(head.said("its last")))
            way.open = False
            began = time.monotonic()
            with pytest.raises(ClusterLost, match=r"n1 was lost: it gave no sign of life for 1 s.*its last") as lost:
                await head.peers.watch()
            assert time.monotonic() - began > 0.9
            assert lost.value.host == "n1"
            assert await session.receive() is None
            assert "no sign of life for 1 s" in session.end
            assert "The head n0 was lost: it gave no sign" in str(client.lost("n0", session.end))
            assert await session.receive() is None
            await session.close()

    done(story())


def test_a_head_whose_process_was_killed_is_silent_and_the_reason_is_told() -> None:
    port = free_port()
    environ = {**os.environ, "PYTHONPATH": f"{CHECKOUT / 'entrypoints'}:{CHECKOUT}"}

    async def story(process: subprocess.Popen[bytes]) -> None:
        session = await join(port, 2.0)
        process.kill()
        process.wait()
        began = time.monotonic()
        assert await session.receive() is None
        assert 1 < time.monotonic() - began < 10
        assert "no sign of life for 2 s (a new connection failed: [Errno 111]" in session.end
        await session.close()

    argv = [sys.executable, "-m", "tests.support.node.channel_rig", str(port)]
    with subprocess.Popen(argv, env=environ, cwd=CHECKOUT) as process:
        done(story(process))


def test_one_whose_own_loop_was_held_up_does_not_take_the_other_for_lost() -> None:
    async def story() -> None:
        async with Head(0.5) as head:
            session = await join(head.port, 0.5)
            await asyncio.sleep(BEAT_S * 2)
            time.sleep(1.5)  # as a file system that does not answer does, or a machine that stands still
            await asyncio.sleep(BEAT_S * 2)
            head.peers.tell("step", step=1)
            assert await numbers(session, 1) == [1]
            assert (session.end, head.peers._failure) == ("", None)
            await session.close()

    done(story())


def test_a_quiet_session_lives_by_its_beats() -> None:
    async def story() -> None:
        async with Head(0.5) as head, Way(head.port) as way:
            session = await join(way.port, 0.5)
            await asyncio.sleep(2)
            assert (session.end, head.peers._failure, way.connections) == ("", None, 1)
            await session.close()

    done(story())


def test_what_is_known_ends_at_once() -> None:
    async def story() -> None:
        async with Head(60.0) as head:
            session = await join(head.port, 60.0)
            verdict = Verdict(66, "self", "model", "n1", "It has no model.", "Bring it.")
            session.send("failed", verdict=vars(verdict))
            await session.close()
            with pytest.raises(Exception, match="It has no model") as failed:
                await asyncio.wait_for(head.peers.watch(), 2)
            assert vars(failed.value)["host"] == "n1"
            assert len(head.peers.workers) == 0
            other = await join(head.port, 60.0, number=2)
            ending = asyncio.ensure_future(head.peers.end(verdict))
            message = await asyncio.wait_for(other.receive(), 2)
            assert message is not None
            assert message["verdict"]["cause"] == "It has no model."
            await asyncio.wait_for(ending, 2)
            await other.close(0)

    done(story())


def test_an_end_that_is_said_while_a_connection_is_away_is_heard_when_it_is_back() -> None:
    async def story() -> None:
        async with Head() as head, Way(head.port) as way:
            session = await join(way.port)
            way.cut()
            await head.peers.end(Verdict(0, "self", "train", "n0", "Training ended with code 0.", ""))
            message = await session.receive()
            assert message is not None
            assert message["kind"] == "end"
            await session.close(0)

    done(story())


def test_a_session_goes_on_over_a_new_connection_while_the_old_one_seems_alive() -> None:
    async def story() -> None:
        async with Head() as head, Way(head.port) as way:
            session = await join(way.port)
            old = head.peer().session._channel
            for number in range(20):
                session.send("row", row=number)
                head.peers.tell("step", step=number)
                if number % 5 == 0:
                    session._start_resuming()
                    await asyncio.sleep(0.02)
            assert await numbers(session, 20) == list(range(20))
            await soon(lambda: len(head.rows) == 20)
            assert head.rows == list(range(20))
            assert old is not None
            assert old._closed
            assert way.connections > 1
            await session.close()

    done(story())


def test_a_message_that_comes_twice_counts_once() -> None:
    async def story() -> None:
        async with Head() as head:
            session = await join(head.port)
            head.peers.tell("step", step=1)
            channel = head.peer().session._channel
            assert channel is not None
            channel.write(b'{"number": 1, "message": {"kind": "step", "step": 1}}')
            head.peers.tell("step", step=2)
            assert await numbers(session, 2) == [1, 2]
            await session.close()

    done(story())


async def raw(port: int, message: Message, token: bytes = TOKEN) -> tuple[Channel, Message | None]:
    """Prove the token on a connection of its own and send a message; return what comes."""
    channel = Channel(*await asyncio.open_connection("127.0.0.1", port, limit=STRANGER_LIMIT), 2.0)
    try:
        await prove(channel, token, head=False)
    except BaseException:
        channel.drop()
        raise
    channel.send(message)
    return channel, await channel.receive()


def test_of_two_attempts_that_race_the_later_holds() -> None:
    async def story() -> None:
        async with Head() as head:
            session = await join(head.port)
            peer = head.peer()
            resume = {"kind": "resume", "session": peer.key, "node_id": 1, "received": 0}
            both = [raw(head.port, {**resume, "attempt": attempt}) for attempt in (8, 9)]
            answers = await asyncio.gather(*both)
            late, refused = await raw(head.port, {**resume, "attempt": 8})
            assert refused is not None
            assert "made attempt 9" in refused["why"]
            assert peer.session._channel is not None
            assert answers[1][1] == {"kind": "resumed", "received": 0}
            await answers[1][0].receive()  # a beat: the head speaks on this one
            assert await answers[0][0].receive() is None
            for channel in (answers[0][0], answers[1][0], late):
                channel.drop()
            await session.close(0)

    done(story())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"session": "0" * 32}, "no such session"),
        ({"session": "another's"}, "no such session"),
        ({"session": ""}, "no such session"),
        ({"session": "\ud800"}, "UnicodeEncodeError"),
        ({"session": None}, "session is NoneType"),
        ({"node_id": 7}, "no such session"),
        ({"node_id": "1"}, "node_id is '1'"),
        ({"attempt": 0}, "made attempt 0"),
        ({"attempt": True}, "attempt is 'True'"),
        ({"received": 99}, "a receipt for message 99 of 0"),
        ({"received": -1}, "received is '-1'"),
    ],
)
def test_who_knows_the_token_and_not_the_session_cannot_take_it(changes: dict[str, Any], why: str) -> None:
    async def story() -> None:
        async with Head() as head:
            sessions = [await join(head.port), await join(head.port, number=2)]
            if changes.get("session") == "another's":
                changes["session"] = head.peer(2).key
            resume = {"kind": "resume", "session": head.peer().key, "node_id": 1, "attempt": 1, "received": 0}
            channel, answer = await raw(head.port, {**resume, **changes})
            if answer is not None and answer["kind"] == "resumed":  # the number is looked at when that was said
                answer = await channel.receive()
            assert head.said(why)
            head.peers.tell("step", step=1)
            assert await numbers(sessions[0], 1) == [1]
            channel.drop()
            for session in sessions:
                await session.close(0)

    done(story())


def test_a_wrong_token_resumes_nothing() -> None:
    async def story() -> None:
        async with Head() as head:
            session = await join(head.port)
            with pytest.raises(PermissionMissing, match="refuses our token"):
                await raw(head.port, {"kind": "resume"}, token=b"another")
            assert head.said("Its token is not ours")
            await session.close(0)

    done(story())


def test_without_a_token_there_is_no_mac_and_a_session_comes_back_too() -> None:
    async def story() -> None:
        async with Head(token=b"") as head, Way(head.port) as way:
            session = await join(way.port, token=b"")
            for number in range(10):
                session.send("row", row=number)
                if number == 5:
                    way.cut()
            await soon(lambda: head.rows == list(range(10)))
            await session.close()

    done(story())


@pytest.mark.parametrize("tokens", [(b"", TOKEN), (TOKEN, b"")])
def test_a_token_on_one_side_alone_is_refused(tokens: tuple[bytes, bytes]) -> None:
    async def story() -> None:
        async with Head(token=tokens[0]) as head:
            with pytest.raises(PermissionMissing, match="One side has a token and the other has none"):
                await join(head.port, token=tokens[1])

    done(story())


def test_the_kernel_gives_up_no_connection_before_the_patience_is_over() -> None:
    async def story() -> None:
        async with Head(77.0) as head:
            session = await join(head.port, 77.0)
            for ours in (session, head.peer().session):
                assert ours._channel is not None
                assert ours._channel._outward is not None
                told = {
                    name: ours._channel._outward.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
                    for name in ("TCP_USER_TIMEOUT", "TCP_KEEPIDLE")
                }
                assert told == {"TCP_USER_TIMEOUT": 77_000, "TCP_KEEPIDLE": 77}
            await session.close(0)

    done(story())


def test_a_second_process_of_a_node_that_is_here_is_refused() -> None:
    async def story() -> None:
        async with Head() as head:
            session = await join(head.port)
            with pytest.raises(PermissionMissing, match=r"node 1 is already here from 127\.0\.0\.1"):
                await join(head.port)
            await session.close(0)

    done(story())


def test_a_head_that_knows_no_such_session_any_more_ends_it() -> None:
    async def story() -> None:
        async with Head(30.0) as head, Way(head.port) as way:
            session = await join(way.port, 30.0)
            head.peer().key = "another's"
            way.cut()
            assert await asyncio.wait_for(session.receive(), 5) is None
            assert "node 1 has no such session" in session.end
            await session.close(0)

    done(story())


UNREADABLE: list[tuple[str, dict[str, Any]]] = [
    ("phase is NoneType", {"kind": "event", "event": {"host": "n1", "event": "note", "message": ""}}),
    ("event is NoneType", {"kind": "event"}),
    ("seconds is str", {"kind": "event", "event": {**event("x"), "seconds": "1"}}),
    ("Verdict is NoneType", {"kind": "failed"}),
    ("Verdict: .*missing", {"kind": "failed", "verdict": {"code": 1}}),
    ("Verdict: .*unexpected", {"kind": "failed", "verdict": {"colour": 1}}),
    ("code of Verdict is str", {"kind": "failed", "verdict": {"code": "1"}}),
    ("report is NoneType", {"kind": "checks"}),
    ("outcomes is dict", {"kind": "checks", "report": {"outcomes": {}}}),
    ("Outcome is int", {"kind": "checks", "report": {"outcomes": [1]}}),
    ("Outcome: .*unexpected", {"kind": "checks", "report": {"outcomes": [{"no": 1}]}}),
    ("time is NoneType", {"kind": "checks", "report": {"outcomes": []}}),
    ("a message without a kind", {}),
    ("a message without a kind", {"kind": 7}),
]


@pytest.mark.parametrize(("why", "message"), UNREADABLE, ids=range(len(UNREADABLE)))
def test_a_message_of_another_form_is_refused_by_name(
    why: str, message: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with Head() as head:
            session = await join(head.port)
            session.send("event", event=event("hello"))
            monkeypatch.setattr(sessions, "_text", lambda _: json.dumps(message).encode())
            session.send("")
            with pytest.raises(CheckFailed, match=f"cannot read: .*{why}") as refused:
                await head.peers.watch()
            assert refused.value.host == "n1"
            await session.close(0)

    done(story())


@pytest.mark.parametrize(
    "frame",
    [
        b'{"number": 2, "message": {"kind": "x"}}',
        b'{"received": 1}',
        b'{"received": "1"}',
        b'{"number": -1, "message": {}}',
    ],
)
def test_a_frame_that_cannot_be_ends_the_session_on_both_sides(frame: bytes) -> None:
    async def story() -> None:
        async with Head() as head:
            session = await join(head.port)
            channel = head.peer().session._channel
            assert channel is not None
            channel.write(frame)
            with pytest.raises(Unreadable):
                await session.receive()
            assert await session.receive() is None
            await session.close(0)

    done(story())


def test_a_text_that_is_too_long_for_a_line_is_cut() -> None:
    async def story() -> None:
        async with Head() as head:
            session = await join(head.port)
            session.send("event", event=event("\x00" * 1_000_000))
            session.send("event", event=event("x" * 1_000_000))
            await soon(lambda: len(head.events) == 2)
            assert [len(told["message"]) for told in head.events] == [len("\x00" * (16 << 10)) + 8, 1_000_000]
            await session.close()

    done(story())


def test_more_than_can_be_kept_ends_with_a_clear_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "KEPT_LIMIT", 3 << 20)

    async def story() -> None:
        async with Head() as head, Way(head.port) as way:
            session = await join(way.port)
            way.open = False
            for _ in range(8):
                session.send("row", row="x" * 500_000)
            assert await session.receive() is None
            assert "more than 3 MiB of messages wait" in session.end
            await session.close(0)

    done(story())
