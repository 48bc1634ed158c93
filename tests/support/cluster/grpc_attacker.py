"""Calls every gRPC method of Ray on the ports of another account's job; runs in our image on a node of that job.

    python3 -c THIS_FILE METHODS TOKEN... -- HOST:PORT...

Prints JSON: for each port that speaks gRPC the services that it lists, and for each token the methods by their status.
The token ``-`` (NONE) means none. METHODS (METHOD,METHOD…) limits the calls; empty means all.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from ray.core import generated

# Services of Ray's C++ servers without stubs in its Python package.
ONLY_IN_C = {
    "/ray.rpc.ObjectManagerService/Push": "unary_unary",
    "/ray.rpc.ObjectManagerService/Pull": "unary_unary",
    "/ray.rpc.ObjectManagerService/FreeObjects": "unary_unary",
    "/ray.rpc.syncer.RaySyncer/StartSync": "stream_stream",
}
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
LIST_SERVICES = b"\x3a\x01*"  # ServerReflectionRequest.list_services = "*"
NODE = ("node_id", "a" * 56)  # without it StartSync ends the server before the token is checked
NONE = "-"
READY_S, CALL_S = 1.0, 5.0
Call = Callable[..., Any]


class Recorder:
    """A channel for stubs of Ray that records their methods."""

    def __init__(self) -> None:
        self.methods: dict[str, str] = {}

    def __getattr__(self, kind: str) -> Callable[..., None]:
        return lambda path, *_, **__: self.methods.update({path: kind})


def methods() -> dict[str, str]:
    """Return path and kind of every method in Ray's Python package, and of those above."""
    recorder = Recorder()
    for module in pkgutil.iter_modules(generated.__path__):
        if module.name.endswith("_pb2_grpc"):
            members = vars(importlib.import_module(f"{generated.__name__}.{module.name}"))
            for stub in (member for name, member in members.items() if name.endswith("Stub")):
                stub(recorder)
    return {**recorder.methods, **ONLY_IN_C}


def call(channel: grpc.Channel, path: str, kind: str, token: str) -> str:
    """Send an empty request; return its status."""
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
    identity: Callable[[bytes], bytes] = lambda content: content  # noqa: E731
    method: Call = getattr(channel, kind)(path, request_serializer=identity, response_deserializer=identity)
    return method


def services(channel: grpc.Channel) -> list[str]:
    """Return the services that the server lists by reflection; the agents' servers, in Python, list none."""
    try:
        answer = next(iter(raw(channel, REFLECTION, "stream_stream")(iter([LIST_SERVICES]), timeout=CALL_S)))
    except grpc.RpcError:
        return []
    return sorted({name.decode() for name in re.findall(rb"(?:grpc|ray)(?:\.\w+)+", answer)})


def probe(address: str, tokens: list[str], only: str) -> Iterator[tuple[str, Any]]:
    """Call the methods of a port with every token; yields nothing if the port does not speak gRPC."""
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=READY_S)
        except grpc.FutureTimeoutError:
            return
        yield "services", services(channel)
        for token in tokens:
            by_status = defaultdict(list)
            for path, kind in sorted(methods().items()):
                if not only or path in only.split(","):
                    by_status[call(channel, path, kind, token)].append(path)
            yield token, by_status


def main() -> None:
    only, *arguments = sys.argv[1:]
    separator = arguments.index("--")
    tokens, addresses = arguments[:separator], arguments[separator + 1 :]
    with ThreadPoolExecutor(len(addresses)) as pool:  # a port that does not speak gRPC takes READY_S
        results = dict(zip(addresses, pool.map(lambda address: dict(probe(address, tokens, only)), addresses)))
    json.dump({address: result for address, result in results.items() if result}, sys.stdout)


if __name__ == "__main__":
    main()
