"""A container of the rehearsal cluster as a host: run commands, copy files to and from it."""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from docker import APIClient
from docker.models.containers import Container

from slurm.errors import ClusterNotReady, CommandFailed
from slurm.testbed.compose import docker_command, run, wait_until

ROOT = "root"
EXIT_CODE_S = 30
# From the engine's API, ContainerAttach: the stream, three zero bytes, the length of the payload.
STDOUT, STDERR, FRAME = 1, 2, struct.Struct(">BxxxL")
# The numbers that slurm/testbed/Dockerfile gives to the two ordinary accounts.
ACCOUNT_IDS = {ROOT: 0, "submitter": 2001, "neighbour": 2002}


@dataclass(frozen=True)
class Output:
    """Exit code and output of a command on a host."""

    code: int
    stdout: str
    stderr: str


class Host:
    """A container of the cluster by its service's name: ``login``, ``registry`` or ``n1`` to ``n8``."""

    def __init__(self, name: str, container: Container, api: APIClient) -> None:
        self.name = name
        self.container = container
        self._api = api

    def run(
        self,
        argv: Sequence[str],
        *,
        user: str = ROOT,
        folder: str = "/",
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 120,
        check: bool = True,
    ) -> Output:
        """Run ``argv`` as ``user`` in ``folder`` and wait for its end.

        :param timeout_s: after this the command is killed and its code is 137.
        :raises CommandFailed: for any code but 0, unless ``check`` is False.
        """
        limited = ["timeout", "--signal=KILL", str(timeout_s), *argv]
        started = self._api.exec_create(
            self.container.id, limited, user=user, workdir=folder, environment=dict(environment or {})
        )
        streams = self._read_streams(started["Id"])
        output = Output(self._exit_code(started["Id"]), _text(streams[STDOUT]), _text(streams[STDERR]))
        if check and output.code:
            raise CommandFailed(argv, output.code, output.stdout + output.stderr, where=f"{self.name} as {user}")
        return output

    def _read_streams(self, exec_id: str) -> dict[int, bytes]:
        """Start the command and read both of its streams to their end.

        Not by docker-py's exec_start, which loses output that arrives together with the response's head
        (https://github.com/docker/docker-py/issues/2042).
        """
        url = f"{self._api.base_url}/v{self._api.api_version}/exec/{exec_id}/start"
        streams = {STDOUT: b"", STDERR: b""}
        with self._api.post(url, json={"Detach": False, "Tty": False}, stream=True) as answer:
            answer.raise_for_status()
            while header := answer.raw.read(FRAME.size):
                stream, length = FRAME.unpack(header)
                streams[stream] += answer.raw.read(length)
        return streams

    def _exit_code(self, exec_id: str) -> int:
        """Return the exit code, which the engine reports as None until a moment after the end of the output."""
        codes: list[int] = []

        def has_ended() -> bool:
            code = self._api.exec_inspect(exec_id)["ExitCode"]
            codes.extend([] if code is None else [code])
            return bool(codes)

        if not wait_until(has_ended, EXIT_CODE_S):
            raise ClusterNotReady(f"The engine on {self.name} reported no exit code within {EXIT_CODE_S} s.")
        return codes[0]

    def put(self, sources: Iterable[Path], folder: str, *, user: str = ROOT) -> None:
        """Copy files and folders into ``folder``, created if necessary, as files of ``user``."""
        self.run(["mkdir", "-p", folder], user=user)
        owner = ACCOUNT_IDS[user]

        def set_owner(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
            if "__pycache__" in member.name:
                return None
            member.uid = member.gid = owner
            member.uname = member.gname = ""
            return member

        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for source in sources:
                archive.add(source, arcname=source.name, filter=set_owner)
        self.container.put_archive(folder, packed.getvalue())

    def put_large(self, source: Path, path: str, *, user: str = ROOT) -> None:
        """Copy a file to ``path`` as a file of ``user``, not through this process's memory."""
        run([docker_command(), "cp", str(source), f"{self.container.id}:{path}"], {})
        self.run(["chown", f"{ACCOUNT_IDS[user]}:{ACCOUNT_IDS[user]}", path])

    def fetch(self, path: str, folder: Path) -> None:
        """Copy the file or folder ``path`` of the host into the local ``folder``, as files of the current account."""
        folder.mkdir(parents=True, exist_ok=True)
        run([docker_command(), "cp", f"{self.container.id}:{path}", str(folder)], {})


def _text(output: bytes) -> str:
    return output.decode(errors="replace")
