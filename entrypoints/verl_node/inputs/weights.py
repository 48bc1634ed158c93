"""Checks that a model folder has every weight file of its index, in full size."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

from verl_node.errors import InputUnavailable

INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
SINGLES = ("model.safetensors", "pytorch_model.bin")


def check(folder: Path) -> list[Path]:
    """The weight files of ``folder``, each there and whole.

    A safetensors file says itself how long it is and what it holds; a .bin file (a zip archive since torch 1.6) is
    whole when its directory, which is its end, can be read.

    Raises:
        InputUnavailable: It names the file and what is wrong with it.
    """
    index = next((folder / name for name in INDEXES if (folder / name).is_file()), None)
    if index is None:
        single = next((folder / name for name in SINGLES if (folder / name).is_file()), None)
        if single is None:
            raise _broken(folder, f"has none of {', '.join((*INDEXES, *SINGLES))}")
        _check_file(single, set())
        return [single]
    files = _files(index)
    for name, tensors in files.items():
        _check_file(folder / name, tensors)
    return [folder / name for name in files]


def _files(index: Path) -> dict[str, set[str]]:
    """Weight file → the tensors that the index expects in it."""
    weight_map = _json(index, index.read_bytes()).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise _broken(index, "has no weight_map")
    files: dict[str, set[str]] = {}
    for tensor, name in weight_map.items():
        files.setdefault(str(name), set()).add(str(tensor))
    return files


def _check_file(path: Path, tensors: set[str]) -> None:
    if not path.is_file():
        raise _broken(path, "is named by the index and is not there")
    if path.suffix == ".safetensors":
        _check_safetensors(path, tensors)
    elif not zipfile.is_zipfile(path):
        raise _broken(path, f"is cut short or no weight file ({path.stat().st_size} bytes)")


def _check_safetensors(path: Path, tensors: set[str]) -> None:
    """Format: 8 bytes with the header's length, the header in JSON, the data that the header's offsets speak of."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = struct.unpack("<Q", file.read(8))[0] if size >= 8 else size
        if 8 + length > size:
            raise _broken(path, f"has {size} bytes, not even a whole header (cut short, or a git-lfs pointer)")
        header = _json(path, file.read(length))
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    wanted = 8 + length + max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    if size != wanted:
        raise _broken(path, f"has {size} bytes, its header says {wanted}")
    if missing := sorted(tensors - set(entries)):
        raise _broken(path, f"lacks {missing[0]} and {len(missing) - 1} other tensors that the index expects in it")


def _json(path: Path, content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except ValueError as error:
        raise _broken(path, f"is not readable ({error})") from error
    if not isinstance(value, dict):
        raise _broken(path, "is not readable (no JSON object)")
    return value


def _broken(path: Path, what: str) -> InputUnavailable:
    return InputUnavailable(
        f"{path} {what}.", fix="Copy or fetch this file again; `verl_node.inputs.model` checks a folder."
    )
