"""Commands in a container of an image under test."""

from __future__ import annotations

from docker import DockerClient

NOBODY = "41234:41235"  # an account that no image knows


def output_of(daemon: DockerClient, image: str, *argv: str, user: str = NOBODY) -> str:
    """Return the standard output of a command that an account without a home folder runs."""
    output = daemon.containers.run(image, list(argv), user=user, remove=True, environment={"HOME": "/tmp"})  # noqa: S108
    return str(output.decode())
