"""Downloads from the Hugging Face hub into HF_HOME; falls back to the cache if the hub does not answer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from verl_node.errors import InputUnavailable
from verl_node.inputs import reachability

OFFLINE = "HF_HUB_OFFLINE is set"
_DEFAULT_HOME = "~/.cache/huggingface"

# Files of other frameworks: the hub's repositories often have the same weights in several formats.
_NOT_NEEDED = ["*.msgpack", "*.h5", "*.gguf", "*.onnx", "onnx/*", "original/*", "*.tflite", "*.ot"]


def address(env: Mapping[str, str]) -> str:
    """Return the hub's address, or HF_ENDPOINT for a site's mirror."""
    return env.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def data_set(repository: str, folder: str) -> Path:
    """Return the copy in HF_HOME of a data set's folder. Raises InputUnavailable."""
    return _snapshot(repository, "dataset", allow=[f"{folder}/*"])


def model(repository: str) -> Path:
    """Return the copy in HF_HOME of a model. Raises InputUnavailable."""
    return _snapshot(repository, "model", ignore=_NOT_NEEDED)


def configuration(repository: str) -> Path:
    """Return the copy in HF_HOME of a model's config.json. Raises InputUnavailable."""
    return _snapshot(repository, "model", allow=["config.json"])


def _snapshot(repository: str, kind: str, *, allow: list[str] | None = None, ignore: list[str] | None = None) -> Path:
    """Download, or use the cache if the hub is unreachable; huggingface_hub handles locks and resuming.

    Raises InputUnavailable if it is not in HF_HOME, and the hub does not answer or does not have it.
    """
    unreachable = _unreachable()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(
                repository,
                repo_type=kind,
                allow_patterns=allow,
                ignore_patterns=ignore,
                local_files_only=bool(unreachable),
            )
        )
    except (LocalEntryNotFoundError, HFValidationError) as error:
        reason = str(error.__cause__ or error).strip().partition("\n")[0]
        cause = f"{repository} is not in {_home()}, and {unreachable or reason}."
        fix = "Download it into the same HF_HOME on a machine that reaches the hub, or use a local folder."
        raise InputUnavailable(cause, fix=fix) from error
    except HfHubHTTPError as error:
        cause = f"{address(os.environ)} answers '{str(error).strip().splitlines()[0]}' for {repository}."
        fix = "Check the name; for a gated repository accept its terms and export HF_TOKEN."
        raise InputUnavailable(cause, fix=fix) from error
    except OSError as error:
        cause = f"{repository} cannot be downloaded into {_home()}: {error}."
        raise InputUnavailable(
            cause, fix="Set HF_HOME to a folder that you own on a disk with enough space."
        ) from error


def is_cached(repository: str, kind: str, env: Mapping[str, str]) -> bool:
    """Whether HF_HOME has a snapshot of a ``model`` or ``dataset``, complete or not."""
    cache = Path(env.get("HF_HOME") or _DEFAULT_HOME).expanduser() / "hub"
    return any((cache / f"{kind}s--{repository.replace('/', '--')}").glob("snapshots/*"))


def is_offline(env: Mapping[str, str]) -> bool:
    """Whether HF_HUB_OFFLINE forbids the use of the hub."""
    return env.get("HF_HUB_OFFLINE", "0") not in ("", "0")


def _unreachable() -> str:
    """Return why the hub cannot be used, or nothing, after at most reachability.ANSWER_TIMEOUT_S."""
    return OFFLINE if is_offline(os.environ) else reachability.unreachable(address(os.environ))


def _home() -> str:
    return os.environ.get("HF_HOME", _DEFAULT_HOME)
