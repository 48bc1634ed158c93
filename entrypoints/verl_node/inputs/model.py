"""Provides the model of a training: made, downloaded, or a folder; checks that it is complete."""

from __future__ import annotations

import json
from pathlib import Path

from verl_node.errors import InputUnavailable
from verl_node.inputs import hub, weights
from verl_node.inputs.data import store

DEMO = "demo:qwen2-tiny"


def path(model: str, data_dir: Path) -> str:
    """What verl is told: a folder, or the hub name, which it finds in HF_HOME without the network."""
    return str(data_dir / "models" / "qwen2-tiny") if model == DEMO else model


def ensure(model: str, data_dir: Path) -> Path:
    """The folder of ``model``, whole, with a configuration and a tokenizer that load.

    `demo:qwen2-tiny` is made here (about 20 s on two cores), an absolute path is taken as it is, anything else is a
    hub name, fetched once into HF_HOME and found there from then on. Safe on several nodes at once.

    Raises:
        InputUnavailable: The folder or the hub's copy is not there, or a file of it is missing, cut short or broken.
    """
    if model == DEMO:
        from verl_node.inputs import demo_model

        folder = store.make(Path(path(model, data_dir)), demo_model.write, fingerprint=demo_model.REVISION)
    elif model.startswith("demo:"):
        raise InputUnavailable(f"There is no demo model {model}.", fix=f"The project makes {DEMO}.")
    elif model.startswith("/"):
        folder = Path(model)
    else:
        folder = hub.model(model)
    check(folder)
    return folder


def check(folder: Path) -> None:
    """Hold that ``folder`` has every weight file with its size, and a configuration and a tokenizer that load.

    Raises:
        InputUnavailable: It names the file and what is wrong with it.
    """
    config = folder / "config.json"
    try:
        json.loads(config.read_bytes())
    except FileNotFoundError:
        cause = f"{folder} has no config.json, so it is no model folder."
        raise InputUnavailable(cause, fix="Set VERLJOB_MODEL to a folder or a hub name.") from None
    except (OSError, ValueError) as error:
        raise InputUnavailable(f"{config} cannot be read: {error}.", fix="Fetch the model again.") from error
    weights.check(folder)
    # transformers brings torch and takes seconds: what is missing on disk has been said by now.
    from transformers import AutoConfig, AutoTokenizer

    try:
        AutoConfig.from_pretrained(str(folder), local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise InputUnavailable(
            f"transformers cannot load {folder}: {error}.", fix="Fetch it again, or use an image that knows the model."
        ) from error
    # transformers 5 makes a tokenizer without a vocabulary of a folder that has no tokenizer.
    if not tokenizer.encode("1 + 1"):
        raise InputUnavailable(
            f"The tokenizer of {folder} knows no token; tokenizer.json is missing or empty.", fix="Fetch it again."
        )
