"""Downloads from the Hugging Face hub into HF_HOME; falls back to the cache where the hub does not answer."""

from __future__ import annotations

import os
from pathlib import Path

from verl_node.errors import InputUnavailable

ANSWER_TIMEOUT_S = 10.0

# What a model folder is made of; the hub's repositories often hold the same weights a second time in other formats.
_NOT_NEEDED = ["*.msgpack", "*.h5", "*.gguf", "*.onnx", "onnx/*", "original/*", "*.tflite", "*.ot"]


def endpoint() -> str:
    """The hub's address, HF_ENDPOINT where a site has a mirror."""
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def data_set(repository: str, folder: str) -> Path:
    """A copy in HF_HOME of ``folder`` of a data set's repository.

    Raises:
        InputUnavailable: It is not in HF_HOME, and the hub does not answer or does not have it.
    """
    return _snapshot(repository, "dataset", allow=[f"{folder}/*"])


def model(repository: str) -> Path:
    """A copy in HF_HOME of a model's repository, without the weights of other frameworks.

    Raises:
        InputUnavailable: It is not in HF_HOME, and the hub does not answer or does not have it.
    """
    return _snapshot(repository, "model", ignore=_NOT_NEEDED)


def configuration(repository: str) -> Path:
    """A copy in HF_HOME of a model's config.json alone.

    Raises:
        InputUnavailable: It is not in HF_HOME, and the hub does not answer or does not have it.
    """
    return _snapshot(repository, "model", allow=["config.json"])


def _snapshot(repository: str, kind: str, *, allow: list[str] | None = None, ignore: list[str] | None = None) -> Path:
    """Fetch, or find what an earlier fetch left; huggingface_hub locks and resumes by itself."""
    silence = _silence()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(
                repository, repo_type=kind, allow_patterns=allow, ignore_patterns=ignore, local_files_only=bool(silence)
            )
        )
    except (LocalEntryNotFoundError, HFValidationError) as error:
        said = str(error.__cause__ or error).strip().partition("\n")[0]
        cause = f"{repository} is not in {_home()}, and {silence or said}."
        fix = "Fetch it where the hub is reachable into the same HF_HOME, or name a local folder."
        raise InputUnavailable(cause, fix=fix) from error
    except HfHubHTTPError as error:
        cause = f"{endpoint()} answers '{str(error).strip().splitlines()[0]}' for {repository}."
        fix = "Check the name; for a gated repository accept its terms and export HF_TOKEN."
        raise InputUnavailable(cause, fix=fix) from error
    except OSError as error:
        cause = f"{repository} cannot be fetched into {_home()}: {error}."
        raise InputUnavailable(cause, fix="Set HF_HOME to a folder of yours on a disk with room.") from error


def _silence() -> str:
    """Why the hub is not to be asked, or nothing; one out of reach costs ANSWER_TIMEOUT_S, not a library's retries."""
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        return "HF_HUB_OFFLINE is set"
    import urllib.error  # a megabyte, which the supervisor does without
    import urllib.request

    request = urllib.request.Request(f"{endpoint()}/api/models?limit=1", method="HEAD")  # noqa: S310 - the site's hub
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S):  # noqa: S310
            return ""
    except urllib.error.HTTPError:
        return ""  # it answers
    except OSError as error:
        return f"{endpoint()} does not answer ({getattr(error, 'reason', error)})"


def _home() -> str:
    return os.environ.get("HF_HOME", "~/.cache/huggingface")
