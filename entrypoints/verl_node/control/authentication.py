"""Mutual authentication of a new connection with the job's token, and the session keys."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

from verl_node.control.channel import Channel, Macs
from verl_node.control.messages import Answer, Challenge, M, Refused, Unreadable, decode, encode
from verl_node.errors import PermissionMissing

_LABEL = b"verljob control channel 2: "  # of the handshake, which is older than messages.PROTOCOL
_HEX = re.compile("[0-9a-f]{64}")
HEAD, WORKER = b"head", b"worker"


async def authenticate(channel: Channel, token: bytes, *, head: bool) -> None:
    """Prove that we know the job's token, check that the other side does, and secure the connection.

    The head sends a random challenge; the worker answers with its own challenge and a keyed hash of both; the head
    answers with another hash. The keys of the lines, one per direction, are also keyed hashes of both challenges, so a
    relay of challenges and answers has no key. Without a token the challenges are empty and there are no keys.

    Raises PermissionMissing, and ConnectionError if the connection ended before.
    """
    own = secrets.token_hex(32) if token else ""
    if head:
        channel.send(encode(Challenge(own)))
        answer = await _receive(channel, Answer)
        _check_challenge(channel, answer.challenge, token)
        proof = _Proof(token, head=own, worker=answer.challenge)
        proof.check(channel, answer, WORKER)
        channel.send(encode(Answer(proof.answer(HEAD))))
    else:
        challenge = (await _receive(channel, Challenge)).challenge
        _check_challenge(channel, challenge, token)
        proof = _Proof(token, head=challenge, worker=own)
        channel.send(encode(Answer(proof.answer(WORKER), own)))
        proof.check(channel, await _receive(channel, Answer), HEAD)
    ours, theirs = (HEAD, WORKER) if head else (WORKER, HEAD)
    channel.secure(incoming=Macs(proof.key(theirs)), outgoing=Macs(proof.key(ours)))


class _Proof:
    def __init__(self, token: bytes, *, head: str, worker: str) -> None:
        self._token = token
        self._challenges = f"{head} {worker}".encode()

    def answer(self, side: bytes) -> str:
        return self._hash(b"answer of the " + side).hex()

    def key(self, side: bytes) -> bytes:
        return self._hash(b"lines of the " + side)

    def check(self, channel: Channel, given: Answer, side: bytes) -> None:
        """Raise PermissionMissing unless a ``side`` that knows the token made this answer."""
        if not hmac.compare_digest(given.answer.encode("utf-8", "replace"), self.answer(side).encode()):
            raise _refused(channel, "Its token is not ours")

    def _hash(self, purpose: bytes) -> bytes:
        if not self._token:
            return b""
        return hmac.new(self._token, _LABEL + purpose + b" " + self._challenges, hashlib.sha256).digest()


def _check_challenge(channel: Channel, challenge: str, token: bytes) -> None:
    if bool(challenge) != bool(token):
        raise _refused(channel, "One side has a token and the other has none")
    if token and not _HEX.fullmatch(challenge):
        raise _refused(channel, "Its challenge is not 64 hex digits")


async def _receive(channel: Channel, accepted: type[M]) -> M:
    raw = await channel.receive()
    if raw is None:
        raise ConnectionError(f"{channel.remote_address} sent no {accepted.__name__}: {channel.end_reason}")
    try:
        message = decode(raw, accepted, Refused)
    except Unreadable as error:  # whose text may quote an unauthenticated peer
        raise _refused(channel, f"It sent no valid {accepted.__name__}") from error
    if not isinstance(message, accepted):
        raise _refused(channel, "It refuses our token")
    return message


def _refused(channel: Channel, why: str) -> PermissionMissing:
    return PermissionMissing(
        f"{channel.remote_address} is not of this job: {why}.",
        fix="Give every node the same VERLJOB_TOKEN_FILE, and one job its own control port.",
    )
