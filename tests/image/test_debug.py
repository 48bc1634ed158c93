"""Ray's debugger with VERLJOB_DEBUG: a failed task waits for VS Code, on a port of the job's block."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest
from docker import DockerClient
from docker.models.containers import Container

# The first request of VS Code: the debug adapter protocol over the socket in launch.json.
FAIL_AND_ATTACH = """
import json, os, re, socket, subprocess, sys, time
import ray
ray.init(log_to_driver=False)

@ray.remote(max_retries=0)
def fail():
    raise ValueError("on purpose")

answer = fail.remote()
deadline = time.monotonic() + 60
found = None
while not found and time.monotonic() < deadline:
    time.sleep(0.5)
    logs = "cat /tmp/ray/session_latest/logs/worker-*"
    output = subprocess.run(logs, shell=True, capture_output=True, text=True).stdout
    found = re.search(r"launch.json: (.*)", output)
where = json.loads(found[1])["connect"]
with socket.create_connection((where["host"], where["port"]), timeout=10) as adapter:
    body = json.dumps({"seq": 1, "type": "request", "command": "initialize", "arguments": {"adapterID": "debugpy"}})
    adapter.sendall(f"Content-Length: {len(body)}\\r\\n\\r\\n{body}".encode())
    reply = ""
    while '"command": "initialize"' not in reply:
        reply += adapter.recv(65536).decode()
waiting, _ = ray.wait([answer], timeout=1)
answered = '"success": true' in reply
print(json.dumps({"attach": json.loads(found[1]), "waits": not waiting, "answered": answered}), flush=True)
os._exit(0)
"""
BLOCK = (21000, 21511)


@pytest.fixture(scope="module")
def cluster(daemon: DockerClient, cpu_image: str) -> Iterator[Container]:
    """A running cluster of one node, with a debugger."""
    container = daemon.containers.run(
        cpu_image, ["node", "--head"], detach=True, shm_size="1g", user="41234:41235",
        environment={"HOME": "/tmp", "VERLJOB_DEBUG": "1", "VERLJOB_PORT_BLOCK": "{}-{}".format(*BLOCK)},  # noqa: S108
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while b"cluster: end" not in container.logs() and time.monotonic() < deadline:
            time.sleep(0.5)
        yield container
    finally:
        container.remove(force=True)


def test_a_failed_task_waits_on_a_port_of_the_block_and_answers(cluster: Container) -> None:
    head = re.search(r"RAY_ADDRESS=(\S+)|`ray start --head` at (\S+)", cluster.logs().decode())
    assert head, cluster.logs().decode()
    done = cluster.exec_run(
        ["python3", "-c", FAIL_AND_ATTACH],
        environment={"RAY_ADDRESS": head[1] or head[2], "HOME": "/tmp", "RAY_AUTH_MODE": "disabled"},  # noqa: S108
    )
    assert isinstance(done.output, bytes)
    assert done.exit_code == 0, done.output.decode()
    result = json.loads(done.output.decode().splitlines()[-1])

    assert result["waits"]
    assert result["answered"]
    assert result["attach"]["request"] == "attach"
    assert BLOCK[0] <= result["attach"]["connect"]["port"] <= BLOCK[1]
