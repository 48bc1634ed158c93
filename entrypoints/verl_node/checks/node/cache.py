"""Hugging Face's cache: one folder, writable, with working locks and room for a model."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from verl_node.checks.check import check
from verl_node.checks.node import folders
from verl_node.checks.result import OK, Result
from verl_node.settings.settings import Settings

MOUNTS = Path("/proc/self/mountinfo")
_MEMORY = ("tmpfs", "ramfs")
# Model families that the hub gives only to accounts that accepted their terms.
_GATED = ("meta-llama/", "google/gemma-", "mistralai/", "CohereForAI/", "CohereLabs/", "bigcode/starcoder")
_LIMIT_S = 10.0  # a network file system may be slow


def home(settings: Settings) -> Path:
    """Return HF_HOME, with the libraries' default."""
    return Path(settings.environ.get("HF_HOME", "") or settings.home / ".cache" / "huggingface")


@check("hf-cache")
def cache_is_one_place(settings: Settings, gpus: int) -> Result:
    """TRANSFORMERS_CACHE and HF_HUB_CACHE are HF_HOME/hub, so models are downloaded once."""
    hub = home(settings) / "hub"
    for name in ("TRANSFORMERS_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        given = settings.environ.get(name, "")
        if given and os.path.realpath(given) != os.path.realpath(hub):
            return Result(
                "warn",
                f"{name} is {given} and HF_HOME is {hub.parent}: the libraries use different caches.",
                f"Unset {name}, or set it to {hub}.",
                str(hub),
            )
    return OK


@check("hf-cache", limit_s=_LIMIT_S)
def cache_is_writable(settings: Settings, gpus: int) -> Result:
    """This account owns or can write HF_HOME, its hub folder, its locks and the job's model."""
    for folder in (home(settings), *_subfolders(settings)):
        if folder.is_dir() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            owner = folder.stat().st_uid
            return Result(
                "permission",
                f"{folder} belongs to uid {owner} and cannot be written by uid {os.getuid()}.",
                f"As its owner: chown -R {os.getuid()} {folder}; or set HF_HOME to a folder of yours.",
                "read, write and search",
            )
    return OK


@check("hf-cache", limit_s=_LIMIT_S)
def cache_has_locks(settings: Settings, gpus: int) -> Result:
    """flock works in HF_HOME, for downloads; some Lustre and NFS mounts do not support it."""
    folder = next((path for path in (home(settings), *home(settings).parents) if path.is_dir()), Path("/"))
    if not os.access(folder, os.W_OK):
        return OK  # cache_is_writable reports it
    with tempfile.TemporaryFile(dir=folder) as probe:
        try:
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return Result(
                "fail",
                f"flock in {folder} ({_mount(folder)[1]}) fails: {error.strerror}.",
                "Mount it with -o flock (Lustre) or a lock daemon (NFS), or set HF_HOME to another file system.",
                "a file system with locks",
            )
    return OK


@check("hf-cache", severity="warn", limit_s=_LIMIT_S)
def cache_is_kept(settings: Settings, gpus: int) -> Result:
    """HF_HOME is on a disk that outlives the container."""
    folder = home(settings)
    target, kind = _mount(folder)
    if (kind in _MEMORY or (kind == "overlay" and target == "/")) and not settings.standalone:
        return Result(
            "warn",
            f"HF_HOME {folder} is on {kind} ({target}), which is lost with the container or at a reboot.",
            "Set HF_HOME to a folder on a file system that all nodes share.",
            "a disk",
        )
    return OK


@check("hf-cache", threshold=16.0, severity="warn", limit_s=_LIMIT_S)
def cache_has_room(settings: Settings, gpus: int, least_gib: float) -> Result:
    """HF_HOME has space and inodes for a model, unless the model is a path."""
    shortage = "" if settings.model.startswith("/") else folders.shortage(home(settings), least_gib)
    if not shortage:
        return OK
    return Result("warn", shortage, "Set HF_HOME to a folder on a disk with enough space.", f"{least_gib:g} GiB")


@check("hf-cache", severity="warn")
def gated_model_has_a_token(settings: Settings, gpus: int) -> Result:
    """A model that is gated on the hub is in the cache, or a token is set to download it."""
    model, environ = settings.model, settings.environ
    if not model.startswith(_GATED) or _cached_model(settings).is_dir():
        return OK
    files = [environ.get("HF_TOKEN_PATH", ""), str(home(settings) / "token")]
    if environ.get("HF_TOKEN") or any(file and os.access(file, os.R_OK) for file in files):
        return OK
    return Result(
        "warn",
        f"{model} is gated on the hub, not in {home(settings)}, and no token is set.",
        "Accept its terms on the hub and export HF_TOKEN before sbatch.",
        "HF_TOKEN",
    )


def _subfolders(settings: Settings) -> Iterator[Path]:
    hub = home(settings) / "hub"
    yield from (hub, hub / ".locks", home(settings) / "datasets")
    if settings.model and not settings.model.startswith(("/", "demo:")):
        cached = _cached_model(settings)
        yield from (cached, hub / ".locks" / cached.name)


def _cached_model(settings: Settings) -> Path:
    return home(settings) / "hub" / f"models--{settings.model.replace('/', '--')}"


def _mount(folder: Path) -> tuple[str, str]:
    """Return the mount point of a folder and its file system type (proc_pid_mountinfo(5))."""
    real = os.path.realpath(folder)
    best = ("", "unknown")
    for line in filter(None, MOUNTS.read_text().split("\n")):
        before, _, after = line.partition(" - ")
        point = before.split()[4].replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[0]):
            best = (point, after.split()[0])
    return best
