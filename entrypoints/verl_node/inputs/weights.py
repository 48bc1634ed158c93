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
    """Return the weight files of ``folder``, after checking that each exists and is complete.

    A safetensors file has its length and content in its header; a .bin file (a zip archive since torch 1.6) is complete
    if the directory at its end can be read. Raises InputUnavailable with the file and its problem.
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
    """Return the tensors that the index expects in each weight file."""
    weight_map = _json(index, index.read_bytes()).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise _broken(index, "has no weight_map")
    files: dict[str, set[str]] = {}
    for tensor, name in weight_map.items():
        files.setdefault(str(name), set()).add(str(tensor))
    return files


def _check_file(path: Path, tensors: set[str]) -> None:
    if not path.is_file():
        raise _broken(path, "is listed in the index and does not exist")
    if path.suffix == ".safetensors":
        _check_safetensors(path, tensors)
    elif not zipfile.is_zipfile(path):
        raise _broken(path, f"is truncated or not a weight file ({path.stat().st_size} bytes)")


def _check_safetensors(path: Path, tensors: set[str]) -> None:
    """Format: 8 bytes with the header's length, the header in JSON, the data at the header's offsets."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = struct.unpack("<Q", file.read(8))[0] if size >= 8 else size
        if 8 + length > size:
            raise _broken(path, f"has {size} bytes, not even a complete header (truncated, or a git-lfs pointer)")
        header = _json(path, file.read(length))
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    expected = 8 + length + max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    if size != expected:
        raise _broken(path, f"has {size} bytes; its header expects {expected}")
    if missing := sorted(tensors - set(entries)):
        raise _broken(path, f"is missing {missing[0]} and {len(missing) - 1} other tensors of the index")


def _json(path: Path, content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except ValueError as error:
        raise _broken(path, f"is not readable ({error})") from error
    if not isinstance(value, dict):
        raise _broken(path, "is not readable (no JSON object)")
    return value


def _broken(path: Path, what: str) -> InputUnavailable:
    return InputUnavailable(f"{path} {what}.", fix="Copy or download this file again.")
