"""A command on a host returns its exit code, even if the engine reports it late."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from docker import APIClient
from docker.models.containers import Container

from slurm.errors import CommandFailed
from slurm.testbed.hosts import Host


class Engine:
    """Fake of docker-py's API; ``codes`` are its successive answers for the exit code."""

    def __init__(self, codes: list[int | None], stdout: bytes = b"", stderr: bytes = b"") -> None:
        self.codes = codes
        self.output = (stdout, stderr)
        self.argv: list[str] = []

    def exec_create(self, container: str, argv: list[str], **how: Any) -> dict[str, str]:
        self.argv = argv
        return {"Id": "1"}

    base_url, api_version = "http+docker://localhost", "1.41"

    @contextmanager
    def post(self, url: str, **_: object) -> Iterator[SimpleNamespace]:
        assert url == "http+docker://localhost/v1.41/exec/1/start"
        frames = [
            struct.pack(">BxxxL", stream, len(output)) + output
            for stream, output in enumerate(self.output, 1)
            if output
        ]
        yield SimpleNamespace(raw=io.BytesIO(b"".join(frames)), raise_for_status=lambda: None)

    def exec_inspect(self, started: str) -> dict[str, int | None]:
        return {"ExitCode": self.codes.pop(0)}


def host(engine: Engine) -> Host:
    return Host("n1", cast("Container", SimpleNamespace(id="abc")), cast("APIClient", engine))


def test_a_late_exit_code_is_waited_for() -> None:
    output = host(Engine([None, None, 7], stdout=b"seen\n")).run(["work"], check=False)

    assert (output.code, output.stdout, output.stderr) == (7, "seen\n", "")


def test_a_failed_command_is_reported_with_host_account_and_output() -> None:
    with pytest.raises(CommandFailed, match=r"(?s)`work hard` on n1 as neighbour ended with 3.*no such file"):
        host(Engine([3], stderr=b"no such file")).run(["work", "hard"], user="neighbour")


def test_a_command_is_killed_at_its_deadline() -> None:
    engine = Engine([0])
    host(engine).run(["work"], timeout_s=5)

    assert engine.argv == ["timeout", "--signal=KILL", "5", "work"]
