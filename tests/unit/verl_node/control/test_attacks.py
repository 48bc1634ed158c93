"""Attacks on the control channel by an account without the token: they can delay it, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from verl_node.control import client
from verl_node.control.messages import Message, Prepare, Step
from verl_node.control.session import Session
from verl_node.errors import BadSettings, PermissionMissing
from verl_node.network import address
from verl_node.supervision import heartbeat

from tests.support.node.channel_attacker import NOBODY
from tests.support.node.channel_rig import Head, Way, free_port, join, row, soon
from tests.support.paths import CHECKOUT, ENTRYPOINTS, SUPPORT

BEAT_S = 0.05
AUTHENTICATION = "failed authentication"


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_S", BEAT_S)
    monkeypatch.setattr(client, "_REOPEN_S", 0.5)
    monkeypatch.setattr(client, "_RESUME_S", 0.5)


@pytest.fixture(scope="module", autouse=True)
def beating() -> None:
    heartbeat.start(Path("/nonexistent"))


@contextmanager
def attacker(what: str, port: int) -> Iterator[subprocess.Popen[str]]:
    """A process of another account, once it has started its attack."""
    argv = [sys.executable, str(SUPPORT / "node" / "channel_attacker.py"), what, str(port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()


async def order(session: Session) -> Message:
    message = await asyncio.wait_for(session.receive(), 10)
    assert message is not None, session.end_reason
    return message


def test_a_relay_of_the_authentication_cannot_change_an_order() -> None:
    async def scenario() -> None:
        head = Head(10.0)
        with attacker("relay", head.port) as other:
            assert other.stdout is not None
            joining = asyncio.ensure_future(join(head.port, 10.0))
            assert "has a worker" in await asyncio.to_thread(other.stdout.readline)
            async with head:
                session = await joining  # through the attacker, who has no key for what follows
                head.server.broadcast(Step(1))
                head.server.broadcast(Prepare(["/bin/true"], []))
                assert await order(session) == Step(1)
                assert await order(session) == Prepare(["/bin/true"], [])
                assert "changed an order" in await asyncio.to_thread(other.stdout.readline)
                await soon(lambda: bool(head.logged("control connection is back")))
                assert session.end_reason == ""
                await session.close()

    asyncio.run(asyncio.wait_for(scenario(), 30))


def changed(line: bytes) -> list[bytes]:
    return [line.replace(b'"step": 7', b'"step": 8')]


def doubled(line: bytes) -> list[bytes]:
    return [line, line] if b'"step": 7' in line else [line]


def left_out(line: bytes) -> list[bytes]:
    return [] if b'"step": 7' in line else [line]


def without_mac(line: bytes) -> list[bytes]:
    return [b" " + line.partition(b" ")[2]] if b'"step": 7' in line else [line]


class Moved:
    """Lines that come in another order."""

    def __init__(self) -> None:
        self._held = b""

    def __call__(self, line: bytes) -> list[bytes]:
        if b'"step": 7' in line:
            self._held = line
            return []
        lines, self._held = [line, self._held], b""
        return lines


def invented(line: bytes) -> list[bytes]:
    return [line, line.partition(b" ")[0] + b' {"number": 99, "message": {"kind": "job-ended"}}\n']


@pytest.mark.parametrize("change", [changed, doubled, left_out, without_mac, Moved(), invented])
def test_a_line_that_was_tampered_with_ends_its_connection_and_changes_no_message(change: Any) -> None:
    notes: list[str] = []

    async def scenario() -> None:
        async with Head(10.0) as head, Way(head.port) as way:
            session = await join(way.port, 10.0)
            session._note = notes.append
            way.to_worker = change
            for number in range(12):
                head.server.broadcast(Step(number))
            await soon(lambda: AUTHENTICATION in " ".join(notes))
            way.to_worker = lambda line: [line]
            assert [await order(session) for _ in range(12)] == [Step(number) for number in range(12)]
            await session.close()

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_lines_of_the_other_direction_or_of_an_earlier_connection_are_refused() -> None:
    notes: list[str] = []
    seen: list[bytes] = []

    def keep(line: bytes) -> list[bytes]:
        seen.append(line)
        return [line]

    async def scenario() -> None:
        async with Head(10.0) as head, Way(head.port) as way:
            way.to_head = keep
            session = await join(way.port, 10.0)
            session._note = notes.append
            session.send(row(1))
            await soon(lambda: head.rows == [1])
            for reflected in (True, False):
                notes.clear()
                old = [line for line in seen if b'"metrics-row"' in line]
                if reflected:
                    way.to_worker = lambda line, old=old: [*old, line]  # type: ignore[misc]
                else:
                    way.cut()
                    way.to_head = lambda line, old=old: [line, *old] if b'"resume"' in line else [line]  # type: ignore[misc]
                await soon(lambda: AUTHENTICATION in " ".join([*notes, *head.logged(AUTHENTICATION)]))
                way.to_worker = way.to_head = lambda line: [line]
                await soon(lambda: session._channel is not None)
            session.send(row(2))
            await soon(lambda: head.rows == [1, 2])
            await session.close()

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_worker_refuses_its_own_line_as_the_heads() -> None:
    to_head: list[bytes] = []
    to_worker: list[bytes] = []

    def keep(line: bytes) -> list[bytes]:
        to_head.append(line)
        return [line]

    def send_back(line: bytes) -> list[bytes]:
        to_worker.append(line)
        return [to_head[1] if len(to_worker) == 3 else line]  # after challenge and answer: hello as the welcome

    async def scenario() -> None:
        async with Head(10.0) as head, Way(head.port) as way:
            way.to_head, way.to_worker = keep, send_back
            with pytest.raises(PermissionMissing, match="closed the connection after our hello"):
                await join(way.port, 10.0)

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_replayed_connection_is_refused() -> None:
    seen: list[bytes] = []

    def keep(line: bytes) -> list[bytes]:
        seen.append(line)
        return [line]

    async def scenario() -> None:
        async with Head(10.0) as head, Way(head.port) as way:
            session = await join(way.port, 10.0)
            way.to_head = keep
            way.cut()
            await soon(lambda: any(b'"resume"' in line for line in seen))
            await soon(lambda: session._channel is not None)
            reader, writer = await asyncio.open_connection("127.0.0.1", head.port)
            writer.write(b"".join(seen))
            said = await reader.read()
            assert b"Its token is not ours" in said
            assert session.end_reason == ""
            writer.close()
            await session.close()

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_the_account_that_listens_on_the_control_port_is_named() -> None:
    port = free_port()

    async def scenario() -> None:
        with pytest.raises(BadSettings, match=r"control port .* cannot be used: .*in use.*") as refused:
            await Head.listening_on(port)
        uid = NOBODY if os.geteuid() == 0 else os.geteuid()
        assert f"(uid {uid}) listens on it." in refused.value.cause

    with attacker("squat", port):
        asyncio.run(scenario())


def test_the_listening_account_is_read_from_the_kernels_tables(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    row = "   0: {} 00000000:0000 {} 00000000:00000000 00:00000000 00000000  {}        0 5 1 0 100 0 0 10 0\n"
    (tmp_path / "net" / "tcp").write_text(head + row.format("0100007F:18EB", "01", 7))
    (tmp_path / "net" / "tcp6").write_text(head + row.format("0" * 32 + ":18EB", "0A", 987654))

    assert address.listener(6379, tmp_path) == " A process of the account with the uid 987654 listens on it."
    assert address.listener(6380, tmp_path) == ""
    assert address.listener(6379, tmp_path / "none") == ""


def test_a_squatter_on_the_heads_port_cannot_authenticate_or_replay_the_answer() -> None:
    async def scenario() -> None:
        async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b' {"kind": "challenge", "challenge": "' + b"a" * 64 + b'"}\n')
            answer = json.loads(await reader.readline())
            writer.write(b' {"kind": "answer", "answer": "' + answer["answer"].encode() + b'"}\n')  # sent back
            await reader.read()
            writer.close()

        server = await asyncio.start_server(pretend, "127.0.0.1", 0)
        with pytest.raises(PermissionMissing, match="Its token is not ours"):
            await join(server.sockets[0].getsockname()[1])
        server.close()
        await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(scenario(), 30))


@pytest.mark.parametrize("what", ["flood", "hold"])
def test_a_worker_connects_while_another_account_uses_all_connections(what: str) -> None:
    async def scenario() -> None:
        async with Head(10.0) as head:
            strangers = head.server._unauthenticated
            sessions = []
            with attacker(what, head.port):
                await soon(lambda: what == "flood" or len(strangers._connections) == strangers._limit)
                for number in (1, 2):
                    sessions.append(await join(head.port, 10.0, number=number, timeout_s=60))
                    head.server.broadcast(Step(number))
                    assert await order(sessions[-1]) == Step(number)
                assert len(strangers._connections) <= strangers._limit
                # as many are closing, and asyncio accepts 8 on each of two sockets before it counts one
                assert len(os.listdir("/proc/self/fd")) < 2 * strangers._limit + 64
                assert len(head.logged("turned away")) <= 1
            for session in sessions:
                await session.close()

    asyncio.run(asyncio.wait_for(scenario(), 90))


def interpreters() -> list[str]:
    """This interpreter, and every Python 3.9 and 3.12 that runs: on PATH, or one of pyenv's versions."""
    found = [sys.executable]
    for version in ("3.9", "3.12"):
        candidates = [shutil.which(f"python{version}")]
        if shutil.which("pyenv"):
            root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=True).stdout.strip()
            candidates += map(str, Path(root, "versions").glob(f"{version}.*/bin/python"))
        for candidate in filter(None, candidates):
            if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
                found.append(candidate)  # a shim is on PATH also where its version is not chosen
                break
    return found


@pytest.mark.parametrize("python", interpreters())
def test_no_unauthenticated_line_costs_a_descriptor_memory_or_log_lines(python: str) -> None:
    environ = {"PYTHONPATH": f"{ENTRYPOINTS}:{CHECKOUT}"}
    argv = [python, "-W", "error", str(SUPPORT / "node" / "bad_lines.py")]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["lines"] >= 231
    assert seen["proved"] >= 60
    assert seen["descriptors"] == [seen["descriptors"][0]] * 2
    assert seen["beats"] == 1  # the worker's, who came in between all of them
    assert (seen["orders"], seen["rows"]) == ([1, 2], [1, 2])
    assert seen["notes"] <= 2
    assert seen["grown_mib"] < 16
    assert seen["answered"] == []
    assert "Traceback" not in done.stderr
