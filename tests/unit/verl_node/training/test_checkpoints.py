"""Checkpoints with the files of verl 0.9.1 with FSDP on two ranks; torch.save writes zip archives."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from verl_node.training import checkpoints

FAMILIES = ("model", "optim", "extra_state")


def archive(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", b"pickle" * 100)
        file.writestr("archive/data/0", b"\0" * 10_000)


def save(folder: Path, step: int, *, ranks: int = 2, latest: bool = True) -> Path:
    path = folder / f"global_step_{step}"
    for family in FAMILIES:
        for rank in range(ranks):
            archive(path / "actor" / f"{family}_world_size_{ranks}_rank_{rank}.pt")
    archive(path / "data.pt")
    if latest:
        (folder / checkpoints.LATEST).write_text(str(step))
    return path


def test_missing_or_empty_folder_has_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "global_step_9.torn-1").mkdir()

    assert checkpoints.newest(tmp_path / "absent") == checkpoints.newest(tmp_path) == checkpoints.Newest()


def test_newest_checkpoint_is_the_one_with_the_highest_step(tmp_path: Path) -> None:
    save(tmp_path, 9)
    newest = save(tmp_path, 10)

    assert checkpoints.newest(tmp_path) == checkpoints.Newest(10, newest, {})


def test_known_checkpoint_is_not_checked_again(tmp_path: Path) -> None:
    (save(tmp_path, 4) / "data.pt").write_bytes(b"")

    assert checkpoints.newest(tmp_path, known=4) == checkpoints.Newest(4)


def cut(path: Path, keep: float = 0.9) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])


def hole(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:1000] + content[5000:])


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a rank's file is missing": (
        lambda path: (path / "actor/optim_world_size_2_rank_1.pt").unlink(),
        "is missing actor/optim",
    ),
    "the last rank's is truncated": (lambda path: cut(path / "actor/model_world_size_2_rank_1.pt"), "truncated"),
    "one is empty": (lambda path: cut(path / "actor/extra_state_world_size_2_rank_0.pt", 0), "truncated"),
    "a piece in the middle is missing": (lambda path: hole(path / "actor/model_world_size_2_rank_0.pt"), "truncated"),
    "the data loader's is truncated": (lambda path: cut(path / "data.pt"), "data.pt truncated"),
    "a part of Megatron's has no metadata": (
        lambda path: archive(path / "actor/dist_ckpt/__0_0.distcp"),
        "is missing dist_ckpt/.metadata",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_torn_checkpoint_is_reported_and_the_previous_one_used(tmp_path: Path, damage: str) -> None:
    before, torn = save(tmp_path, 1), save(tmp_path, 2)
    break_checkpoint, problem = DAMAGE[damage]
    break_checkpoint(torn)

    found = checkpoints.newest(tmp_path)

    assert (found.step, found.path) == (1, before)
    assert problem in found.torn[torn]


def test_checkpoint_newer_than_the_trainers_record_is_incomplete(tmp_path: Path) -> None:
    before = save(tmp_path, 1)
    unfinished = save(tmp_path, 2, latest=False)

    found = checkpoints.newest(tmp_path)

    assert found.path == before
    assert "latest_checkpointed_iteration.txt, which has 1" in found.torn[unfinished]


@pytest.mark.parametrize("content", ["", "1x", None])
def test_incomplete_record_of_the_trainer_is_ignored(tmp_path: Path, content: str | None) -> None:
    whole = save(tmp_path, 2, latest=False)
    (save(tmp_path, 3, latest=False) / "data.pt").unlink()
    if content is not None:
        (tmp_path / checkpoints.LATEST).write_text(content)

    found = checkpoints.newest(tmp_path)

    assert found.path == whole
    assert len(found.torn) == 1


def test_checkpoint_without_shards_is_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "global_step_1"
    archive(path / "data.pt")
    (path / "actor" / "huggingface").mkdir(parents=True)
    (path / "actor" / "huggingface" / "config.json").write_text("{}")

    assert "max_actor_ckpt_to_keep" in checkpoints.newest(tmp_path).torn[path]


def test_exported_weights_beside_the_shards_are_checked(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    (path / "actor" / "huggingface").mkdir()
    (path / "actor" / "huggingface" / "model.safetensors").write_bytes(b"short")

    assert "has incomplete weights" in checkpoints.newest(tmp_path).torn[path]
