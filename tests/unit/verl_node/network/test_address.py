from __future__ import annotations

import socket

import pytest
from verl_node.errors import BadSettings
from verl_node.network import address


def test_an_address_and_its_port_read_back_as_they_are_written() -> None:
    for host in ("10.0.0.1", "fd00::1", "n1"):
        assert address.split(address.join(host, 6380)) == (host, 6380)


def test_a_name_that_resolves_to_loopback_or_to_somebody_else_is_not_our_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_route = address.own()

    monkeypatch.setattr(address, "_resolve", lambda _: ["127.0.1.1", "192.0.2.7"])
    assert address.own("n1") == by_route


@pytest.mark.parametrize(
    ("head", "routes", "wanted"),
    [
        ("10.0.0.1", {"10.0.0.1": "10.0.0.2", "192.0.2.1": "172.16.0.2"}, "10.0.0.2"),
        ("10.0.0.1", {"10.0.0.1": "10.0.0.2"}, "10.0.0.2"),
        ("127.0.1.1", {"10.0.0.3": "10.0.0.2"}, "10.0.0.2"),
        ("127.0.1.1", {}, "127.0.0.1"),
    ],
    ids=["the route to the head comes first", "a worker", "a head whose name loops", "no route"],
)
def test_nodes_need_no_default_route(
    head: str, routes: dict[str, str], wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compute nodes often have none. A default route is one to 192.0.2.1."""
    names = {"n1": [head], "n2": ["10.0.0.2"], "n3": ["10.0.0.3"]}
    monkeypatch.setattr(address, "_resolve", names.__getitem__)
    monkeypatch.setattr(address, "_is_ours", lambda candidate: False)
    monkeypatch.setattr(address, "_leaving", lambda target: routes.get(target, ""))

    assert address.own("n1", ["n1", "n2", "n3"]) == wanted


def test_a_listening_port_answers_and_a_closed_one_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert address.answers("127.0.0.1", port)
    assert not address.answers("127.0.0.1", port)


def test_a_name_that_nobody_knows_is_said_so() -> None:
    with pytest.raises(BadSettings, match=r"no-such-host\.invalid"):
        address.numeric("no-such-host.invalid")
