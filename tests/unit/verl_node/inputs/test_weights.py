from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path

import pytest
from verl_node.errors import InputUnavailable
from verl_node.inputs import model, weights


def safetensors(path: Path, **sizes: int) -> None:
    """Write a file by the format's specification: header length, header, data."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, size in sizes.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    safetensors(tmp_path / "model-1.safetensors", embed=100, layer=50)
    safetensors(tmp_path / "model-2.safetensors", head=200)
    names = {"embed": "model-1.safetensors", "layer": "model-1.safetensors", "head": "model-2.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return tmp_path


def test_complete_model_has_every_file_of_its_index(folder: Path) -> None:
    assert weights.check(folder) == [folder / "model-1.safetensors", folder / "model-2.safetensors"]


def test_missing_weight_file_is_named(folder: Path) -> None:
    (folder / "model-2.safetensors").unlink()
    with pytest.raises(
        InputUnavailable, match=r"model-2\.safetensors is listed in the index and does not exist"
    ) as seen:
        weights.check(folder)
    assert seen.value.code == 66


@pytest.mark.parametrize(
    ("end", "problem"), [(-1, "its header expects"), (20, "not even a complete header"), (0, "0 bytes")]
)
def test_truncated_weight_file_is_named_with_its_sizes(folder: Path, end: int, problem: str) -> None:
    path = folder / "model-1.safetensors"
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(InputUnavailable, match=problem) as seen:
        weights.check(folder)
    assert str(path) in seen.value.cause


def test_git_lfs_pointer_is_rejected(folder: Path) -> None:
    (folder / "model-1.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(InputUnavailable, match="git-lfs pointer"):
        weights.check(folder)


def test_weight_file_without_the_indexs_tensors_is_named(folder: Path) -> None:
    safetensors(folder / "model-2.safetensors", other=200)
    with pytest.raises(InputUnavailable, match=r"model-2\.safetensors is missing head"):
        weights.check(folder)


@pytest.mark.parametrize("index", ["", "[]", "{}", '{"weight_map": {}}'])
def test_invalid_index_is_named(folder: Path, index: str) -> None:
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(InputUnavailable, match=r"model\.safetensors\.index\.json"):
        weights.check(folder)


def test_single_weight_file_needs_no_index(tmp_path: Path) -> None:
    safetensors(tmp_path / "model.safetensors", all=10)
    assert weights.check(tmp_path) == [tmp_path / "model.safetensors"]


def test_truncated_bin_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model-1.bin"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"x" * 1000)
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {"a": path.name}}))
    assert weights.check(tmp_path) == [path]
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputUnavailable, match="truncated"):
        weights.check(tmp_path)


def test_folder_without_weights_or_configuration_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputUnavailable, match=r"has none of model\.safetensors\.index\.json"):
        weights.check(tmp_path)
    with pytest.raises(InputUnavailable, match=r"has no config\.json"):
        model.ensure(str(tmp_path), tmp_path)


def test_invalid_config_json_is_named(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "qwen2",')
    with pytest.raises(InputUnavailable, match=r"config\.json cannot be read"):
        model.check(folder)


def test_unknown_demo_model_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputUnavailable, match="no demo model demo:llama"):
        model.ensure("demo:llama", tmp_path)
