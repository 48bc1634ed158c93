"""Mutual authentication of a new connection with the job's token, and the session keys."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Any

from verl_node.control.channel import Channel, Macs, Message
from verl_node.errors import PermissionMissing

_LABEL = b"verljob control channel 2: "
_HEX = re.compile("[0-9a-f]{64}")
HEAD, WORKER = b"head", b"worker"


async def prove(channel: Channel, token: bytes, *, head: bool) -> None:
    """Show the other side that we know the job's token, have it show that too, and secure the connection by it.

    The head sends a random challenge; the worker answers with its own challenge and a keyed hash of both; the head
    answers with another. The keys of the lines, one for each direction, are keyed hashes of both challenges, too: who
    only passes challenges and answers on has none of them. Without a token there is neither challenge nor key.

    Raises PermissionMissing, and ConnectionError where the connection ended before.
    """
    mine = secrets.token_hex(32) if token else ""
    if head:
        channel.send({"kind": "challenge", "challenge": mine})
        answer = await _expect(channel, "answer")
        proof = _Proof(token, head=mine, worker=_challenge(channel, answer, token))
        proof.check(channel, answer, WORKER)
        channel.send({"kind": "answer", "answer": proof.answer(HEAD)})
    else:
        theirs = _challenge(channel, await _expect(channel, "challenge"), token)
        proof = _Proof(token, head=theirs, worker=mine)
        channel.send({"kind": "answer", "challenge": mine, "answer": proof.answer(WORKER)})
        proof.check(channel, await _expect(channel, "answer"), HEAD)
    own, other = (HEAD, WORKER) if head else (WORKER, HEAD)
    channel.secure(incoming=Macs(proof.key(other)), outgoing=Macs(proof.key(own)))


class _Proof:
    def __init__(self, token: bytes, *, head: str, worker: str) -> None:
        self._token = token
        self._challenges = f"{head} {worker}".encode()

    def answer(self, side: bytes) -> str:
        return self._hash(b"answer of the " + side).hex()

    def key(self, side: bytes) -> bytes:
        return self._hash(b"lines of the " + side)

    def check(self, channel: Channel, message: Message, side: bytes) -> None:
        """Raise PermissionMissing unless the answer is that of a ``side`` which knows the token."""
        given = message.get("answer")
        given = given.encode("utf-8", "replace") if isinstance(given, str) else b""
        if not hmac.compare_digest(given, self.answer(side).encode()):
            raise _refused(channel, "Its token is not ours")

    def _hash(self, purpose: bytes) -> bytes:
        if not self._token:
            return b""
        return hmac.new(self._token, _LABEL + purpose + b" " + self._challenges, hashlib.sha256).digest()


def _challenge(channel: Channel, message: Message, token: bytes) -> str:
    challenge: Any = message.get("challenge")
    if isinstance(challenge, str) and bool(challenge) != bool(token):
        raise _refused(channel, "One side has a token and the other has none")
    if not isinstance(challenge, str) or (token and not _HEX.fullmatch(challenge)):
        raise _refused(channel, "Its challenge is none")
    return challenge


async def _expect(channel: Channel, kind: str) -> Message:
    message = await channel.receive()
    if message is None:
        raise ConnectionError(f"{channel.remote_address} did not send its {kind}: {channel.end}")
    if message.get("kind") == "refused":
        raise _refused(channel, "It refuses our token")
    if message.get("kind") != kind:
        raise _refused(channel, f"It did not send its {kind}")
    return message


def _refused(channel: Channel, why: str) -> PermissionMissing:
    return PermissionMissing(
        f"{channel.remote_address} is not of this job: {why}.",
        fix="Give every node the same VERLJOB_TOKEN_FILE, and one job its own control port.",
    )
