"""Which inputs a node cannot have, and whether a server answers."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from verl_node.errors import InputUnavailable
from verl_node.inputs import lookup, reachability

from tests.support.paths import ENTRYPOINTS

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The environment of a node whose hub does not answer."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ENTRYPOINTS),
        "HF_HOME": str(tmp_path / "hf"),
        "HF_ENDPOINT": NOWHERE,
    }


@pytest.fixture
def refusing_server() -> Iterator[str]:
    """The address of a server that answers every request with 404."""

    class Refuses(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The address of a server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def require(data_dir: Path, env: dict[str, str], source: Path | None = None) -> None:
    asyncio.run(
        lookup.require(
            ["Org/Model", "/models/own", "demo:qwen2-tiny"],
            ["gsm8k", "demo"],
            data_dir=data_dir,
            source=source,
            env=env,
        )
    )


def test_all_missing_inputs_are_named_at_once(tmp_path: Path, env: dict[str, str]) -> None:
    with pytest.raises(InputUnavailable) as seen:
        require(tmp_path, env)

    assert (seen.value.code, seen.value.stage) == (66, "data")
    assert f"no model Org/Model in HF_HOME and no data set gsm8k in {tmp_path}" in seen.value.cause
    assert f"{NOWHERE}" in seen.value.cause
    assert "own" not in seen.value.cause
    assert "demo" not in seen.value.cause
    assert "./run stage" in seen.value.fix


def test_a_node_that_may_not_use_the_hub_is_told_so(tmp_path: Path, env: dict[str, str]) -> None:
    with pytest.raises(InputUnavailable, match="HF_HUB_OFFLINE is set"):
        require(tmp_path, {**env, "HF_HUB_OFFLINE": "1"})


def test_inputs_on_disk_need_no_hub(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "hf" / "hub" / "models--Org--Model" / "snapshots" / "abc").mkdir(parents=True)
    (tmp_path / "data" / "gsm8k").mkdir(parents=True)
    (tmp_path / "data" / "gsm8k" / "manifest.json").touch()

    require(tmp_path / "data", env)
    require(tmp_path / "nothing", env, source=tmp_path)
    with pytest.raises(InputUnavailable, match=f"no data set gsm8k in {tmp_path / 'nothing'}, and"):
        require(tmp_path / "nothing", env)


def test_raw_files_in_the_hubs_cache_suffice(tmp_path: Path, env: dict[str, str]) -> None:
    for name in ("models--Org--Model", "datasets--openai--gsm8k"):
        (tmp_path / "hf" / "hub" / name / "snapshots" / "abc").mkdir(parents=True)

    require(tmp_path, env)


def test_a_hub_that_answers_is_left_to_the_preparation(
    tmp_path: Path, env: dict[str, str], refusing_server: str
) -> None:
    require(tmp_path, {**env, "HF_ENDPOINT": refusing_server})


def test_a_silent_server_is_given_up_in_time(
    env: dict[str, str], silent_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachability, "ANSWER_TIMEOUT_S", 1.0)
    began = time.monotonic()

    reason = asyncio.run(reachability.check(silent_server, env))

    assert reason == f"{silent_server} does not answer within 1 s"
    assert time.monotonic() - began < 5


def test_a_password_of_the_address_is_in_no_command_line(
    env: dict[str, str], silent_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachability, "ANSWER_TIMEOUT_S", 1.0)
    started: list[list[str]] = []
    start = reachability.Process.start

    async def record(argv: list[str], *arguments: object, **more: object) -> object:
        started.append(argv)
        return await start(argv, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(reachability.Process, "start", record)
    asyncio.run(reachability.check(silent_server.replace("//", "//account:password@"), env))

    assert started
    assert "password" not in " ".join(started[0])


def test_a_check_that_cannot_run_ends_no_job(env: dict[str, str]) -> None:
    assert asyncio.run(reachability.check(NOWHERE, {**env, "PYTHONPATH": "/nowhere"})) == ""
