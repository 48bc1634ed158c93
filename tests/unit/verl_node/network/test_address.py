from __future__ import annotations

import socket

import pytest
from verl_node.errors import BadSettings
from verl_node.network import address


def test_host_and_port_round_trip() -> None:
    for host in ("10.0.0.1", "fd00::1", "n1"):
        assert address.split(address.join(host, 6380)) == (host, 6380)


def test_name_that_resolves_to_loopback_or_another_host_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_route = address.own()

    monkeypatch.setattr(address, "_resolve", lambda _: ["127.0.1.1", "192.0.2.7"])
    assert address.own("n1") == by_route


@pytest.mark.parametrize(
    ("head", "routes", "expected"),
    [
        ("10.0.0.1", {"10.0.0.1": "10.0.0.2", "192.0.2.1": "172.16.0.2"}, "10.0.0.2"),
        ("10.0.0.1", {"10.0.0.1": "10.0.0.2"}, "10.0.0.2"),
        ("127.0.1.1", {"10.0.0.3": "10.0.0.2"}, "10.0.0.2"),
        ("127.0.1.1", {}, "127.0.0.1"),
    ],
    ids=["the route to the head comes first", "a worker", "a head whose name loops", "no route"],
)
def test_own_address_needs_no_default_route(
    head: str, routes: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compute nodes often have no default route, which is one to 192.0.2.1."""
    names = {"n1": [head], "n2": ["10.0.0.2"], "n3": ["10.0.0.3"]}
    monkeypatch.setattr(address, "_resolve", names.__getitem__)
    monkeypatch.setattr(address, "_is_ours", lambda candidate: False)
    monkeypatch.setattr(address, "_source", lambda target: routes.get(target, ""))

    assert address.own("n1", ["n1", "n2", "n3"]) == expected


def test_only_a_listening_port_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert address.answers("127.0.0.1", port)
    assert not address.answers("127.0.0.1", port)


def test_unknown_name_is_reported() -> None:
    with pytest.raises(BadSettings, match=r"no-such-host\.invalid"):
        address.numeric("no-such-host.invalid")
