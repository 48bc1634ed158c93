"""Errors of building, checking and publishing images; all derive from ImageError."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence


class ImageError(Exception):
    """An error that the reader of its message can fix."""


class CatalogError(ImageError, ValueError):
    """catalog.toml is not valid."""


class UnknownVariant(ImageError, LookupError):
    """The catalog has no such variant or platform."""

    def __init__(self, name: str, known: Iterable[str], fix: str = "") -> None:
        super().__init__(
            f"no image {name!r} in images/catalog.toml; it has: {', '.join(sorted(known))}{fix and '. '}{fix}"
        )


class NotBuilt(ImageError, LookupError):
    """The daemon has no image with this name."""

    def __init__(self, reference: str) -> None:
        super().__init__(
            f"{reference} is not on this machine; `invoke image.list` shows local images, `invoke build` builds one."
        )


class Incompatible(ImageError, ValueError):
    """A combination of base, packages and engine that cannot work, refused before the build."""


class SiteError(ImageError, ValueError):
    """A site setting is not valid, from a flag, the environment or the site file."""


class BundleBroken(ImageError):
    """A bundle has missing or damaged files, or is for another build."""


class EngineMissing(ImageError):
    """No docker client with BuildKit, or no daemon."""


class DiskTooSmall(ImageError):
    """Less free disk space than the operation needs."""


class ToolMissing(ImageError):
    """A required program is not on PATH."""

    def __init__(self, program: str, package: str) -> None:
        super().__init__(f"{program} is not on PATH: `apt-get install {package}` (./run does it as root on Debian)")


class CommandFailed(ImageError):
    """A command failed; the message has the last lines of its output."""

    def __init__(self, argv: Sequence[str], code: int, output: str = "") -> None:
        self.argv, self.code, self.output = list(argv), code, output
        tail = "\n".join(output.strip().splitlines()[-10:])
        super().__init__(f"{shlex.join(self.argv)} exited with {code}" + (f":\n{tail}" if tail else ""))


class BaseUnreachable(ImageError):
    """The base image is neither local nor in a registry that answers."""

    def __init__(self, reference: str, output: str) -> None:
        reason = " ".join(output.split())[-300:] or "nothing"
        super().__init__(
            f"the base {reference} is not on this machine and could not be pulled (docker printed: {reason}). Name a "
            "copy in a registry or mirror that you can reach with --base REGISTRY/NAME:TAG, or copy it: `docker save "
            f"{reference} -o base.tar` on a machine that can pull it, `docker load -i base.tar` on this one."
        )


class TorchUnavailable(ImageError):
    """No build of torch without CUDA was found."""


class PushFailed(ImageError):
    """The registry did not accept the image."""


class TagTaken(PushFailed):
    """The tag of a release already names another image."""


class RegistryFailed(ImageError):
    """The registry did not answer as the distribution API specifies, or refused."""


class AccessDenied(RegistryFailed):
    """The registry wants a login, or refuses this one."""


class ReleaseFailed(ImageError):
    """A release of the toolkit cannot be made, or not all of its images were pushed; no tag was set."""


class NotPinned(ImageError):
    """A download of a variant has no version or hash."""

    def __init__(self, wrong: Sequence[str]) -> None:
        super().__init__("\n  ".join(["not pinned:", *wrong]))


class NotTrusted(ImageError):
    """A statement about an image is missing, not valid, or does not match the image."""
