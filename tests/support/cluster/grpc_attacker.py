"""Calls every gRPC method that Ray knows on the ports of somebody's job; runs in an image of ours, beside that job.

    python3 -c THIS_FILE ANSWERED TOKEN... -- HOST:PORT...

Prints JSON: for each port that speaks gRPC the services that it names itself, and what each token came to: the methods
by the status that they ended with. ``-`` (NONE) is no token. With ANSWERED (METHOD,METHOD…) only these are called.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from ray.core import generated

# Services of Ray's C++ servers that its Python package has no stubs of.
ONLY_IN_C = {
    "/ray.rpc.ObjectManagerService/Push": "unary_unary",
    "/ray.rpc.ObjectManagerService/Pull": "unary_unary",
    "/ray.rpc.ObjectManagerService/FreeObjects": "unary_unary",
    "/ray.rpc.syncer.RaySyncer/StartSync": "stream_stream",
}
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
LIST_SERVICES = b"\x3a\x01*"  # ServerReflectionRequest.list_services = "*"
NODE = ("node_id", "a" * 56)  # without which StartSync ends the server before it looks at the token
NONE = "-"
READY_S, CALL_S = 1.0, 5.0
Call = Callable[..., Any]


class Recorder:
    """A channel that a stub of Ray's can be made of, which notes its methods."""

    def __init__(self) -> None:
        self.methods: dict[str, str] = {}

    def __getattr__(self, kind: str) -> Callable[..., None]:
        return lambda path, *_, **__: self.methods.update({path: kind})


def methods() -> dict[str, str]:
    """Path to kind of every method that Ray's Python package can call, and of those above."""
    recorder = Recorder()
    for module in pkgutil.iter_modules(generated.__path__):
        if module.name.endswith("_pb2_grpc"):
            found = vars(importlib.import_module(f"{generated.__name__}.{module.name}"))
            for stub in (each for name, each in found.items() if name.endswith("Stub")):
                stub(recorder)
    return {**recorder.methods, **ONLY_IN_C}


def call(channel: grpc.Channel, path: str, kind: str, token: str) -> str:
    """The status that an empty request ends with."""
    metadata = [NODE, *([("authorization", f"Bearer {token}")] if token != NONE else [])]
    request = b"" if kind.startswith("unary") else iter([b""])
    try:
        answer = raw(channel, path, kind)(request, metadata=metadata, timeout=CALL_S)
        if kind.endswith("stream"):
            next(iter(answer), None)
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def raw(channel: grpc.Channel, path: str, kind: str) -> Call:
    same: Callable[[bytes], bytes] = lambda content: content  # noqa: E731
    method: Call = getattr(channel, kind)(path, request_serializer=same, response_deserializer=same)
    return method


def services(channel: grpc.Channel) -> list[str]:
    """What the server says that it serves; the agents' servers are Python's and do not say."""
    try:
        answer = next(iter(raw(channel, REFLECTION, "stream_stream")(iter([LIST_SERVICES]), timeout=CALL_S)))
    except grpc.RpcError:
        return []
    return sorted({name.decode() for name in re.findall(rb"(?:grpc|ray)(?:\.\w+)+", answer)})


def asked(address: str, tokens: list[str], only: str) -> Iterator[tuple[str, Any]]:
    """What a port answers, unless it speaks no gRPC."""
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=READY_S)
        except grpc.FutureTimeoutError:
            return
        yield "services", services(channel)
        for token in tokens:
            ended = defaultdict(list)
            for path, kind in sorted(methods().items()):
                if not only or path in only.split(","):
                    ended[call(channel, path, kind, token)].append(path)
            yield token, ended


def main() -> None:
    only, *words = sys.argv[1:]
    tokens, addresses = words[: words.index("--")], words[words.index("--") + 1 :]
    told = {address: dict(asked(address, tokens, only)) for address in addresses}
    json.dump({address: answers for address, answers in told.items() if answers}, sys.stdout)


if __name__ == "__main__":
    main()
