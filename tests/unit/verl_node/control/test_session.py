"""A control connection may break or be silent: no message is lost or doubled until the patience is over."""

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
from verl_node.control.authentication import authenticate
from verl_node.control.channel import UNAUTHENTICATED_LIMIT, Channel
from verl_node.control.messages import Failed, JobEnded, Step, Unreadable
from verl_node.control.session import Session
from verl_node.errors import CheckFailed, ClusterLost, PermissionMissing
from verl_node.reporting.events import Event
from verl_node.reporting.verdict import Verdict
from verl_node.supervision import heartbeat

from tests.support.node.channel_rig import TOKEN, Change, Head, Way, event, free_port, join, row, soon
from tests.support.paths import CHECKOUT

BEAT_S = 0.05


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Twenty times as many heartbeats, and shorter reconnects."""
    monkeypatch.setattr(heartbeat, "BEAT_S", BEAT_S)
    monkeypatch.setattr(client, "_REOPEN_S", 0.5)
    monkeypatch.setattr(client, "_RESUME_S", 0.5)
    yield
    left = set(heartbeat._beats)
    heartbeat._beats.clear()  # or one failed test would fail all that follow
    assert left == set()


@pytest.fixture(scope="module", autouse=True)
def beating() -> None:
    heartbeat.start(Path("/nonexistent"))


def done(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 30))


async def numbers(session: Session, count: int) -> list[int]:
    """Return the numbers of that many orders."""
    got: list[int] = []
    while len(got) < count:
        message = await session.receive()
        assert isinstance(message, Step), session.end_reason
        got.append(message.step)
    return got


def test_messages_both_ways_arrive_once_and_in_order_over_connections_that_are_reset() -> None:
    async def scenario() -> None:
        async with Head() as head, Way(head.port) as way:
            session = await join(way.port)
            hearing = asyncio.ensure_future(numbers(session, 300))
            for number in range(300):
                session.send(row(number))
                head.server.broadcast(Step(number))
                if number % 60 == 30:
                    way.cut()
                await asyncio.sleep(0.005)
            assert await hearing == list(range(300))
            await soon(lambda: len(head.rows) == 300)
            assert head.rows == list(range(300))
            assert way.connections >= 3
            assert head.logged("the control connection broke")
            assert head.logged("the control connection is back")
            await session.close()

    done(scenario())


def test_lines_lost_at_random_with_their_connection_are_sent_again() -> None:
    chance = random.Random(1)  # noqa: S311  the same losses every time

    async def scenario() -> None:
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
                session.send(row(number))
                head.server.broadcast(Step(number))
                await asyncio.sleep(0.01)
            assert await hearing == list(range(100))
            await soon(lambda: len(head.rows) == 100)
            assert head.rows == list(range(100))
            way.to_head = way.to_worker = lambda line: [line]
            await session.close()

    done(scenario())


def test_an_outage_shorter_than_the_patience_loses_nothing() -> None:
    async def scenario() -> None:
        async with Head(5.0) as head, Way(head.port) as way:
            session = await join(way.port, 5.0)
            way.open = False
            head.server.broadcast(Step(1))
            session.send(row(1))
            await asyncio.sleep(3)
            assert head.rows == []
            way.open = True
            assert await numbers(session, 1) == [1]
            await soon(lambda: head.rows == [1])
            assert (session.end_reason, head.server._failure) == ("", None)
            await session.close()

    done(scenario())


def test_an_outage_longer_than_the_patience_loses_worker_and_head() -> None:
    async def scenario() -> None:
        async with Head(1.0) as head, Way(head.port) as way:
            session = await join(way.port, 1.0)
            session.send(event("its last"))
            await soon(lambda: bool(head.logged("its last")))
            way.open = False
            began = time.monotonic()
            with pytest.raises(ClusterLost, match=r"n1 was lost: it sent no heartbeat for 1 s.*its last") as lost:
                await head.server.watch()
            assert time.monotonic() - began > 0.9
            assert lost.value.host == "n1"
            assert await session.receive() is None
            assert "no heartbeat for 1 s" in session.end_reason
            assert "The head n0 was lost: it sent no heartbeat" in str(client.lost("n0", session.end_reason))
            assert await session.receive() is None
            await session.close()

    done(scenario())


def test_a_killed_head_is_reported_as_silent_with_the_reason() -> None:
    port = free_port()
    environ = {**os.environ, "PYTHONPATH": f"{CHECKOUT / 'entrypoints'}:{CHECKOUT}"}

    async def scenario(process: subprocess.Popen[bytes]) -> None:
        session = await join(port, 2.0)
        process.kill()
        process.wait()
        began = time.monotonic()
        assert await session.receive() is None
        assert 1 < time.monotonic() - began < 10
        assert "no heartbeat for 2 s (a new connection failed: [Errno 111]" in session.end_reason
        await session.close()

    argv = [sys.executable, "-m", "tests.support.node.channel_rig", str(port)]
    with subprocess.Popen(argv, env=environ, cwd=CHECKOUT) as process:
        done(scenario(process))


def test_a_blocked_event_loop_does_not_report_the_other_side_as_lost() -> None:
    async def scenario() -> None:
        async with Head(2.0) as head:
            session = await join(head.port, 2.0)
            await asyncio.sleep(BEAT_S * 2)
            time.sleep(3)  # as a file system that does not answer does, or a machine that stands still
            await asyncio.sleep(BEAT_S * 2)
            head.server.broadcast(Step(1))
            assert await numbers(session, 1) == [1]
            assert (session.end_reason, head.server._failure) == ("", None)
            await session.close()

    done(scenario())


def test_heartbeats_end_the_silence_of_a_quiet_session() -> None:
    heard = {"to_head": 0, "to_worker": 0}

    def count(direction: str) -> Change:
        def counted(line: bytes) -> list[bytes]:
            heard[direction] += 1
            return [line]

        return counted

    async def scenario() -> None:
        async with Head(60.0) as head, Way(head.port) as way:
            session = await join(way.port, 60.0)
            way.to_head, way.to_worker = count("to_head"), count("to_worker")
            await soon(lambda: min(heard.values()) >= 80, 20)
            # Without heartbeats they would be 40 or more: two threads send heartbeats where two modules started one.
            assert max(session._silent, head.peer().session._silent) < 20
            assert (session.end_reason, head.server._failure, way.connections) == ("", None, 1)
            await session.close()

    done(scenario())


def test_a_verdict_ends_the_other_side_at_once() -> None:
    async def scenario() -> None:
        async with Head(60.0) as head:
            session = await join(head.port, 60.0)
            verdict = Verdict(66, "self", "model", "n1", "It has no model.", "Bring it.")
            session.send(Failed(verdict))
            await session.close()
            with pytest.raises(Exception, match="It has no model") as failed:
                await asyncio.wait_for(head.server.watch(), 2)
            assert vars(failed.value)["host"] == "n1"
            assert len(head.server.workers) == 0
            other = await join(head.port, 60.0, number=2)
            ending = asyncio.ensure_future(head.server.end_job(verdict))
            message = await asyncio.wait_for(other.receive(), 2)
            assert isinstance(message, JobEnded)
            assert message.verdict.cause == "It has no model."
            await asyncio.wait_for(ending, 2)
            await other.close(0)

    done(scenario())


def test_the_end_of_a_job_arrives_after_a_reconnect() -> None:
    async def scenario() -> None:
        async with Head() as head, Way(head.port) as way:
            session = await join(way.port)
            way.cut()
            await head.server.end_job(Verdict(0, "self", "train", "n0", "Training ended with code 0.", ""))
            message = await session.receive()
            assert isinstance(message, JobEnded)
            await session.close(0)

    done(scenario())


def test_a_session_continues_over_a_new_connection_while_the_old_one_seems_alive() -> None:
    async def scenario() -> None:
        async with Head() as head, Way(head.port) as way:
            session = await join(way.port)
            old = head.peer().session._channel
            for number in range(20):
                session.send(row(number))
                head.server.broadcast(Step(number))
                if number % 5 == 0:
                    session._start_reconnecting()
                    await asyncio.sleep(0.02)
            assert await numbers(session, 20) == list(range(20))
            await soon(lambda: len(head.rows) == 20)
            assert head.rows == list(range(20))
            assert old is not None
            assert old._closed
            assert way.connections > 1
            await session.close()

    done(scenario())


def test_a_message_that_comes_twice_counts_once() -> None:
    async def scenario() -> None:
        async with Head() as head:
            session = await join(head.port)
            head.server.broadcast(Step(1))
            channel = head.peer().session._channel
            assert channel is not None
            channel.send(b'{"number": 1, "message": {"kind": "step", "step": 1}}')
            head.server.broadcast(Step(2))
            assert await numbers(session, 2) == [1, 2]
            await session.close()

    done(scenario())


async def raw(port: int, message: dict[str, Any], token: bytes = TOKEN) -> tuple[Channel, dict[str, Any] | None]:
    """Authenticate another connection and send a message; return the connection and the answer."""
    channel = Channel(*await asyncio.open_connection("127.0.0.1", port, limit=UNAUTHENTICATED_LIMIT), 2.0)
    try:
        await authenticate(channel, token, head=False)
    except BaseException:
        channel.abort()
        raise
    channel.send(json.dumps(message).encode())
    return channel, await channel.receive()


def test_the_later_of_two_racing_attempts_to_resume_wins() -> None:
    async def scenario() -> None:
        async with Head() as head:
            session = await join(head.port)
            peer = head.peer()
            resume = {"kind": "resume", "session": peer.session_key, "node_id": 1, "received": 0}
            both = [raw(head.port, {**resume, "attempt": attempt}) for attempt in (8, 9)]
            answers = await asyncio.gather(*both)
            late, refused = await raw(head.port, {**resume, "attempt": 8})
            assert refused is not None
            assert "made attempt 9" in refused["why"]
            assert peer.session._channel is not None
            assert answers[1][1] == {"kind": "resumed", "received": 0}
            await answers[1][0].receive()  # a beat: the head speaks on this one
            while await answers[0][0].receive():  # beats sent before the later attempt won
                pass
            for channel in (answers[0][0], answers[1][0], late):
                channel.abort()
            await session.close(0)

    done(scenario())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"session": "0" * 32}, "no such session"),
        ({"session": "another's"}, "no such session"),
        ({"session": ""}, "no such session"),
        ({"session": "\ud800"}, "UnicodeEncodeError"),
        ({"session": None}, "session of Resume is NoneType"),
        ({"node_id": 7}, "no such session"),
        ({"node_id": "1"}, "node_id of Resume is str"),
        ({"attempt": 0}, "made attempt 0"),
        ({"attempt": True}, "attempt of Resume is bool"),
        ({"received": 99}, "a receipt for message 99 of 0"),
        ({"received": -1}, "received of Resume is -1"),
    ],
)
def test_a_session_cannot_be_resumed_without_its_key(changes: dict[str, Any], why: str) -> None:
    async def scenario() -> None:
        async with Head() as head:
            sessions = [await join(head.port), await join(head.port, number=2)]
            if changes.get("session") == "another's":
                changes["session"] = head.peer(2).session_key
            resume = {"kind": "resume", "session": head.peer().session_key, "node_id": 1, "attempt": 1, "received": 0}
            channel, answer = await raw(head.port, {**resume, **changes})
            if answer is not None and answer["kind"] == "resumed":  # the number is looked at when that was said
                answer = await channel.receive()
            assert head.logged(why)
            head.server.broadcast(Step(1))
            assert await numbers(sessions[0], 1) == [1]
            channel.abort()
            for session in sessions:
                await session.close(0)

    done(scenario())


def test_a_wrong_token_resumes_nothing() -> None:
    async def scenario() -> None:
        async with Head() as head:
            session = await join(head.port)
            with pytest.raises(PermissionMissing, match="refuses our token"):
                await raw(head.port, {"kind": "resume"}, token=b"another")
            assert head.logged("Its token is not ours")
            await session.close(0)

    done(scenario())


def test_without_a_token_there_are_no_macs_and_a_session_resumes() -> None:
    async def scenario() -> None:
        async with Head(token=b"") as head, Way(head.port) as way:
            session = await join(way.port, token=b"")
            for number in range(10):
                session.send(row(number))
                if number == 5:
                    way.cut()
            await soon(lambda: head.rows == list(range(10)))
            await session.close()

    done(scenario())


@pytest.mark.parametrize("tokens", [(b"", TOKEN), (TOKEN, b"")])
def test_a_token_on_only_one_side_is_refused(tokens: tuple[bytes, bytes]) -> None:
    async def scenario() -> None:
        async with Head(token=tokens[0]) as head:
            with pytest.raises(PermissionMissing, match="One side has a token and the other has none"):
                await join(head.port, token=tokens[1])

    done(scenario())


def test_the_kernel_times_out_no_connection_before_the_patience_is_over() -> None:
    async def scenario() -> None:
        async with Head(77.0) as head:
            session = await join(head.port, 77.0)
            for ours in (session, head.peer().session):
                assert ours._channel is not None
                assert ours._channel._output is not None
                told = {
                    name: ours._channel._output.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
                    for name in ("TCP_USER_TIMEOUT", "TCP_KEEPIDLE")
                }
                assert told == {"TCP_USER_TIMEOUT": 77_000, "TCP_KEEPIDLE": 77}
            await session.close(0)

    done(scenario())


def test_a_second_process_of_a_connected_node_is_refused() -> None:
    async def scenario() -> None:
        async with Head() as head:
            session = await join(head.port)
            with pytest.raises(PermissionMissing, match=r"node 1 is already connected from 127\.0\.0\.1"):
                await join(head.port)
            await session.close(0)

    done(scenario())


def test_a_head_without_the_session_ends_it() -> None:
    async def scenario() -> None:
        async with Head(30.0) as head, Way(head.port) as way:
            session = await join(way.port, 30.0)
            head.peer().session_key = "another's"
            way.cut()
            assert await asyncio.wait_for(session.receive(), 5) is None
            assert "node 1 has no such session" in session.end_reason
            await session.close(0)

    done(scenario())


NOTE = vars(Event(1.5, "n1", "train", "note", "x"))
REPORT = {"host": "n1", "outcomes": [], "facts": {}}
UNREADABLE: list[tuple[str, Any]] = [
    ("host, phase of Event is missing", {"kind": "worker-event", "event": {"time": 1, "event": "note", "message": ""}}),
    ("event of WorkerEvent is missing", {"kind": "worker-event"}),
    ("seconds of Event is str", {"kind": "worker-event", "event": {**NOTE, "seconds": "1"}}),
    ("verdict of Failed is missing", {"kind": "failed"}),
    ("Verdict is missing", {"kind": "failed", "verdict": {"code": 1}}),
    ("Verdict has an unexpected 'colour'", {"kind": "failed", "verdict": {"colour": 1}}),
    ("code of Verdict is str", {"kind": "failed", "verdict": {"code": "1"}}),
    ("report, time of ChecksDone is missing", {"kind": "checks-done"}),
    ("Report is NoneType", {"kind": "checks-done", "report": None, "time": 1}),
    ("outcomes of Report is dict", {"kind": "checks-done", "report": {"outcomes": {}}}),
    ("Outcome is int", {"kind": "checks-done", "report": {"outcomes": [1]}}),
    ("Outcome has an unexpected 'no'", {"kind": "checks-done", "report": {"outcomes": [{"no": 1}]}}),
    ("time of ChecksDone is missing", {"kind": "checks-done", "report": REPORT}),
    ("row of MetricsRow is int", {"kind": "metrics-row", "row": 1}),
    ("hang of StacksWritten is -1", {"kind": "stacks-written", "hang": -1}),
    ("'checks-of-version-4' is not a kind of message", {"kind": "checks-of-version-4"}),
    ("'step' is out of place", {"kind": "step", "step": 1}),
    ("Prepared has an unexpected 'more'", {"kind": "prepared", "more": 1}),
    ("a message without a kind", {}),
    ("a message without a kind", {"kind": 7}),
    ("a message without a kind", [1]),
]


@pytest.mark.parametrize(("why", "message"), UNREADABLE, ids=range(len(UNREADABLE)))
def test_a_malformed_message_is_refused_with_the_problem(
    why: str, message: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with Head() as head:
            session = await join(head.port)
            session.send(event("hello"))
            monkeypatch.setattr(sessions, "encode", lambda _: json.dumps(message).encode())
            session.send(row(1))
            with pytest.raises(CheckFailed, match=f"cannot read: .*{why}") as refused:
                await head.server.watch()
            assert refused.value.host == "n1"
            await session.close(0)

    done(scenario())


@pytest.mark.parametrize(
    "frame",
    [
        b'{"number": 2, "message": {"kind": "x"}}',
        b'{"received": 1}',
        b'{"received": "1"}',
        b'{"number": -1, "message": {}}',
    ],
)
def test_a_malformed_frame_ends_the_session_on_both_sides(frame: bytes) -> None:
    async def scenario() -> None:
        async with Head() as head:
            session = await join(head.port)
            channel = head.peer().session._channel
            assert channel is not None
            channel.send(frame)
            with pytest.raises(Unreadable):
                await session.receive()
            assert await session.receive() is None
            await session.close(0)

    done(scenario())


def test_a_text_that_is_too_long_for_a_line_is_cut() -> None:
    async def scenario() -> None:
        async with Head() as head:
            session = await join(head.port)
            session.send(event("\x00" * 1_000_000))
            session.send(event("x" * 1_000_000))
            await soon(lambda: len(head.events) == 2)
            assert [len(event.message) for event in head.events] == [len("\x00" * (16 << 10)) + 8, 1_000_000]
            await session.close()

    done(scenario())


def test_too_many_unacknowledged_messages_end_the_session_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "UNACKNOWLEDGED_LIMIT", 3 << 20)

    async def scenario() -> None:
        async with Head() as head, Way(head.port) as way:
            session = await join(way.port)
            way.open = False
            for _ in range(8):
                session.send(row("x" * 500_000))
            assert await session.receive() is None
            assert "more than 3 MiB of messages wait" in session.end_reason
            await session.close(0)

    done(scenario())
