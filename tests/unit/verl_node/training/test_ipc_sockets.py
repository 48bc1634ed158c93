"""verl's sockets are in the job's TMPDIR, not in the /tmp of a node without containers."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import pytest
from verl_node.training import external_modules

OF_A_JOB = "/tmp/verljob-0-20-1-0/tmp"  # noqa: S108  as bare's
HANDLE = "rl-colocate-zmq-01000000-replica-0-rank-0.sock"


class FakeSocket:
    """A socket that records its addresses."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def bind(self, addr: Any) -> None:
        self.seen.append(addr)

    def connect(self, addr: Any) -> None:
        self.seen.append(addr)


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module, imported after a zmq with FakeSocket, in a job with a TMPDIR."""
    zmq = ModuleType("zmq")
    monkeypatch.setattr(zmq, "Socket", type("Socket", (FakeSocket,), {}), raising=False)
    monkeypatch.setitem(sys.modules, "zmq", zmq)
    monkeypatch.setenv("TMPDIR", OF_A_JOB)
    monkeypatch.delitem(sys.modules, external_modules.IPC_SOCKETS, raising=False)
    module = importlib.import_module(external_modules.IPC_SOCKETS)
    monkeypatch.delitem(sys.modules, external_modules.IPC_SOCKETS)
    return module


@pytest.mark.parametrize(
    ("address", "used"),
    [
        (f"ipc:///tmp/{HANDLE}", f"ipc://{OF_A_JOB}/{HANDLE}"),
        ("ipc:///tmp/verl_vllm_zmq_12_user.ipc", f"ipc://{OF_A_JOB}/verl_vllm_zmq_12_user.ipc"),
        (f"ipc://{OF_A_JOB}/of-vllm", f"ipc://{OF_A_JOB}/of-vllm"),
        ("ipc:///tmp/folder/socket", "ipc:///tmp/folder/socket"),
        ("tcp://127.0.0.1:5555", "tcp://127.0.0.1:5555"),
        (b"ipc:///tmp/bytes", b"ipc:///tmp/bytes"),
    ],
)
def test_a_socket_in_tmp_is_moved_on_both_sides(sockets: ModuleType, address: Any, used: Any) -> None:
    socket = sys.modules["zmq"].Socket()
    socket.bind(address)
    socket.connect(address)

    assert socket.seen == [used, used]


def test_without_a_tmpdir_nothing_is_moved(sockets: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR")

    assert sockets.in_tmpdir(f"ipc:///tmp/{HANDLE}") == f"ipc:///tmp/{HANDLE}"


def test_a_verl_without_zmq_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)
    monkeypatch.delitem(sys.modules, external_modules.IPC_SOCKETS, raising=False)

    importlib.import_module(external_modules.IPC_SOCKETS)
    monkeypatch.delitem(sys.modules, external_modules.IPC_SOCKETS)


@pytest.mark.parametrize(
    ("environ", "modules"),
    [
        ({}, None),
        ({"TMPDIR": "/tmp/"}, None),  # noqa: S108
        ({"TMPDIR": OF_A_JOB}, "verl_node.training.ipc_sockets"),
        (
            {"TMPDIR": OF_A_JOB, "VERL_USE_EXTERNAL_MODULES": "verl_cpu.platform,mine"},
            "verl_cpu.platform,mine,verl_node.training.ipc_sockets",
        ),
    ],
)
def test_only_a_job_with_its_own_tmpdir_has_the_module(environ: dict[str, str], modules: str | None) -> None:
    assert external_modules.variables(environ).get("VERL_USE_EXTERNAL_MODULES") == modules
