"""Errors of making, checking and publishing images.

ImageError
├── CatalogError            catalog.toml says something impossible
├── UnknownVariant          no such variant or platform
├── NotBuilt                no such image on this machine
├── Incompatible            a pair that cannot work, refused before a build
├── SiteError               the settings of this place say something impossible
├── BundleBroken            a bundle lacks a file, has a damaged one, or is for another build
├── EngineMissing           no docker client with BuildKit, or no daemon
├── DiskTooSmall            what is asked would not fit
├── ToolMissing             a program of a Debian package is not installed
├── CommandFailed           a command ended with an error
├── BaseUnreachable         the base is neither here nor in a registry that answers
├── TorchUnavailable        no CPU build of torch
├── PushFailed              the registry did not take the image
│   └── TagTaken            a release's tag names another image there
├── RegistryFailed          the registry did not answer as the distribution API says
├── NotPinned               something that a variant takes from elsewhere has no version or hash
└── NotTrusted              what is stated of an image is missing, broken, or not true
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence


class ImageError(Exception):
    """Something that the reader of the message can put right."""


class CatalogError(ImageError, ValueError):
    """catalog.toml names an unknown key, or lacks one."""


class UnknownVariant(ImageError, LookupError):
    """Neither a variant nor a platform of the catalog."""

    def __init__(self, asked: str, known: Iterable[str]) -> None:
        super().__init__(f"no image {asked!r} in images/catalog.toml; it has: {', '.join(sorted(known))}")


class NotBuilt(ImageError, LookupError):
    """The daemon has no image of this name."""

    def __init__(self, reference: str) -> None:
        super().__init__(
            f"{reference} is not on this machine; `invoke image.list` shows what is, `invoke build` makes it."
        )


class Incompatible(ImageError, ValueError):
    """verl does not run on this base, whatever is installed."""


class SiteError(ImageError, ValueError):
    """What a flag, the environment or the site file says of this place cannot be meant."""


class BundleBroken(ImageError):
    """A bundle that cannot be used for this build."""


class EngineMissing(ImageError):
    """There is nothing that can build."""


class DiskTooSmall(ImageError):
    """There is less room than what is asked takes."""


class ToolMissing(ImageError):
    """A program that this needs is not on PATH."""

    def __init__(self, program: str, package: str) -> None:
        super().__init__(f"{program} is not on PATH: `apt-get install {package}` (./run does it as root on Debian)")


class CommandFailed(ImageError):
    """A command ended with an error; the last lines that it said come with the message."""

    def __init__(self, argv: Sequence[str], code: int, output: str = "") -> None:
        self.argv, self.code, self.output = list(argv), code, output
        tail = "\n".join(output.strip().splitlines()[-10:])
        super().__init__(f"{shlex.join(self.argv)} ended with {code}" + (f":\n{tail}" if tail else ""))


class BaseUnreachable(ImageError):
    """The base image cannot be had by its own name."""

    def __init__(self, reference: str, said: str) -> None:
        reason = " ".join(said.split())[-300:] or "nothing"
        super().__init__(
            f"the base {reference} is not on this machine and could not be pulled (docker said: {reason}). Name a copy "
            "in a registry or mirror that you reach with --base REGISTRY/NAME:TAG, or carry it here: `docker save "
            f"{reference} -o base.tar` where it can be pulled, `docker load -i base.tar` here, and build again."
        )


class TorchUnavailable(ImageError):
    """No build of torch without CUDA was found."""


class PushFailed(ImageError):
    """The registry did not take the image."""


class TagTaken(PushFailed):
    """A tag that never moves would have to."""


class RegistryFailed(ImageError):
    """The registry cannot be asked, or refused."""


class NotPinned(ImageError):
    """A variant would take something from elsewhere that may be another thing tomorrow."""

    def __init__(self, wrong: Sequence[str]) -> None:
        super().__init__("\n  ".join(["not pinned:", *wrong]))


class NotTrusted(ImageError):
    """What is stated of an image is missing, broken, or not what the image is."""
