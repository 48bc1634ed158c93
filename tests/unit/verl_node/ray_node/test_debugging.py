"""Variables, flags and ports of Ray's two debuggers."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from verl_node.errors import BadSettings
from verl_node.ray_node import environment, flags, worker_setup
from verl_node.settings.parsing import DISTRIBUTED, LEGACY, NO_DEBUGGER
from verl_node.settings.ports import DEBUGGERS, HeadPorts, NodePorts
from verl_node.settings.settings import Settings
from verl_node.supervision.hang import OFF, REPORT

HEAD = HeadPorts(30001, 30002, 30003)
PORTS = NodePorts.divide(21000, 21511, HEAD, debuggers=DEBUGGERS)


def test_the_debuggers_ports_are_the_end_of_the_block() -> None:
    assert PORTS.debuggers == (21496, 21511)
    assert PORTS.workers_last == 21495
    assert NodePorts.divide(21000, 21511, HEAD).debuggers is None
    assert NodePorts.divide(21000, 21511, HEAD).workers_last == 21511


def test_the_distributed_debugger_needs_no_flag_of_the_old_one() -> None:
    set_up = environment.debugger(DISTRIBUTED, PORTS)
    assert set_up == {"RAY_DEBUG": "1", "RAY_DEBUG_POST_MORTEM": "1", "VERLJOB_DEBUG_PORTS": "21496-21511"}
    assert flags._debugger(DISTRIBUTED) == []


def test_the_old_debugger_turns_post_mortem_of_the_new_one_off() -> None:
    set_up = environment.debugger(LEGACY, PORTS)
    assert (set_up["RAY_DEBUG"], set_up["RAY_DEBUG_POST_MORTEM"]) == ("legacy", "0")
    assert flags._debugger(LEGACY) == ["--ray-debugger-external"]
    share = flags.Share(4, 0, None, None)
    argv = flags.worker_argv(
        "10.0.0.1:6379",
        node_address="10.0.0.2",
        host="n2",
        ports=PORTS,
        share=share,
        temp_dir=Path("/t"),
        debug="legacy",
    )
    assert "--ray-debugger-external" in argv


def test_without_a_debugger_nothing_is_set() -> None:
    assert environment.debugger(NO_DEBUGGER, PORTS) == {}
    assert flags._debugger(NO_DEBUGGER) == []


def test_a_debugger_gets_a_free_port_of_the_block() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert worker_setup.free_port("127.0.0.1", f"{port}-{port}") == 0
    assert worker_setup.free_port("127.0.0.1", f"{port}-{port}") == port


def test_breakpoints_of_the_old_debugger_listen_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's class binds when a breakpoint is reached (ray/util/rpdb.py, 2.40 to 2.54)."""
    listen = lambda breakpoint_uuid, host, port: socket.create_server((host, port))  # noqa: E731
    rpdb = SimpleNamespace(_RemotePdb=listen)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(util=rpdb))
    monkeypatch.setitem(sys.modules, "ray.util", SimpleNamespace(rpdb=rpdb))
    block = "22480-22481"
    worker_setup._patch_rpdb(block)

    with rpdb._RemotePdb("a", host="", port=0) as one, rpdb._RemotePdb("b", host="", port=0) as other:
        assert {one.getsockname()[1], other.getsockname()[1]} == {22480, 22481}


def test_a_training_that_waits_in_a_debugger_is_no_hang() -> None:
    assert Settings.from_env({}).hang.action == REPORT
    assert Settings.from_env({"VERLJOB_DEBUG": "1"}).hang.action == OFF
    with pytest.raises(BadSettings, match="VERLJOB_DEBUG is 'yes'"):
        Settings.from_env({"VERLJOB_DEBUG": "yes"})
