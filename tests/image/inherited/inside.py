"""Commands in a container of an image under test."""

from __future__ import annotations

from docker import DockerClient

NOBODY = "41234:41235"  # an account that no image has


def said(daemon: DockerClient, image: str, *argv: str, user: str = NOBODY) -> str:
    """What a command says on standard output, as somebody without a home."""
    output = daemon.containers.run(image, list(argv), user=user, remove=True, environment={"HOME": "/tmp"})  # noqa: S108
    return str(output.decode())
