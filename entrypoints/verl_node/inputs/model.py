"""Provides a training's model: makes, downloads or finds it, and checks that it is complete."""

from __future__ import annotations

import json
from pathlib import Path

from verl_node.errors import InputUnavailable
from verl_node.inputs import hub, weights
from verl_node.inputs.data import store

DEMO = "demo:qwen2-tiny"


def path(model: str, data_dir: Path) -> str:
    """Return the path for verl: a folder, or the hub name of a model in HF_HOME."""
    return str(data_dir / "models" / "qwen2-tiny") if model == DEMO else model


def ensure(model: str, data_dir: Path) -> Path:
    """Return the folder of ``model``, complete and with a configuration and a tokenizer that load.

    `demo:qwen2-tiny` is made (about 20 s on two cores), an absolute path is used unchanged, any other name is
    downloaded from the hub into HF_HOME once. Safe on several nodes at once.

    Raises InputUnavailable if the model does not exist, or a file of it is missing, truncated or broken.
    """
    if model == DEMO:
        from verl_node.inputs import demo_model

        folder = store.make(Path(path(model, data_dir)), demo_model.write, fingerprint=demo_model.REVISION)
    elif model.startswith("demo:"):
        raise InputUnavailable(f"There is no demo model {model}.", fix=f"Use {DEMO}.")
    elif model.startswith("/"):
        folder = Path(model)
    else:
        folder = hub.model(model)
    check(folder)
    return folder


def check(folder: Path) -> None:
    """Check that ``folder`` has all weight files in full size, and a configuration and a tokenizer that load.

    Raises InputUnavailable with the file and its problem.
    """
    config = folder / "config.json"
    try:
        json.loads(config.read_bytes())
    except FileNotFoundError:
        cause = f"{folder} has no config.json, so it is not a model folder."
        raise InputUnavailable(cause, fix="Set VERLJOB_MODEL to a folder or a hub name.") from None
    except (OSError, ValueError) as error:
        raise InputUnavailable(f"{config} cannot be read: {error}.", fix="Download the model again.") from error
    weights.check(folder)
    # imported late: transformers and torch take seconds, and missing files are reported first
    from transformers import AutoConfig, AutoTokenizer

    try:
        AutoConfig.from_pretrained(str(folder), local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise InputUnavailable(
            f"transformers cannot load {folder}: {error}.",
            fix="Download it again, or use an image that supports the model.",
        ) from error
    # transformers 5 returns a tokenizer with an empty vocabulary for a folder without a tokenizer.
    if not tokenizer.encode("1 + 1"):
        raise InputUnavailable(
            f"The tokenizer of {folder} has no tokens; tokenizer.json is missing or empty.", fix="Download it again."
        )
