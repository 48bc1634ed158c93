from __future__ import annotations

from pathlib import Path

import pytest
from verl_node.errors import InputUnavailable
from verl_node.training import checkpoints
from verl_node.training.recipe import Training
from verl_node.training.resume import resumed

from tests.unit.verl_node.training.test_checkpoints import save


def training(folder: Path, *overrides: str) -> Training:
    return Training(["python3", "-m", "main", *overrides], {}, [], [], [], None, folder)


def test_training_without_checkpoints_is_unchanged(tmp_path: Path) -> None:
    assert resumed(training(tmp_path), 1) == training(tmp_path)


def test_training_resumes_from_the_newest_complete_checkpoint(tmp_path: Path) -> None:
    path = save(tmp_path, 3)

    found = resumed(training(tmp_path), 2)

    assert found.argv[3:] == ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={path}"]
    assert any("from step 3" in note for note in found.notes)


def test_torn_checkpoint_is_renamed_reported_and_skipped(tmp_path: Path) -> None:
    before, torn = save(tmp_path, 3), save(tmp_path, 4)
    (torn / "actor" / "model_world_size_2_rank_0.pt").write_bytes(b"")

    found = resumed(training(tmp_path), 2)

    assert found.argv[-1] == f"trainer.resume_from_path={before}"
    assert any("global_step_4 has actor/model_world_size_2_rank_0.pt truncated" in note for note in found.notes)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "global_step_3",
        "global_step_4.torn-2",
        checkpoints.LATEST,
    ]
    assert (tmp_path / checkpoints.LATEST).read_text() == "3"


def test_only_torn_checkpoints_disable_resuming(tmp_path: Path) -> None:
    (save(tmp_path, 1) / "data.pt").write_bytes(b"")

    found = resumed(training(tmp_path), 2)

    assert found.argv[-1] == "trainer.resume_mode=disable"
    assert [path.name for path in tmp_path.iterdir()] == ["global_step_1.torn-2"]


@pytest.mark.parametrize("override", ["trainer.resume_mode=disable", "+trainer.resume_from_path=/x/global_step_1"])
def test_resume_override_of_the_user_wins(tmp_path: Path, override: str) -> None:
    torn = save(tmp_path, 1)
    (torn / "data.pt").write_bytes(b"")

    assert resumed(training(tmp_path, override), 2).argv == training(tmp_path, override).argv
    assert torn.is_dir()


def test_unreadable_checkpoint_folder_exits_with_66(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / checkpoints.LATEST).unlink()
    (tmp_path / checkpoints.LATEST).mkdir()

    with pytest.raises(InputUnavailable, match="cannot be read"):
        resumed(training(tmp_path), 1)
