from __future__ import annotations

from pathlib import Path

import pytest
from verl_node.errors import InputUnavailable
from verl_node.training import checkpoints
from verl_node.training.recipe import Training
from verl_node.training.resume import continued

from tests.unit.verl_node.training.test_checkpoints import save


def training(folder: Path, *words: str) -> Training:
    return Training(["python3", "-m", "main", *words], {}, [], [], [], None, folder)


def test_a_training_without_checkpoints_begins_as_it_is(tmp_path: Path) -> None:
    assert continued(training(tmp_path), 1) == training(tmp_path)


def test_it_goes_on_from_the_newest_whole_checkpoint_by_its_path(tmp_path: Path) -> None:
    path = save(tmp_path, 3)

    found = continued(training(tmp_path), 2)

    assert found.argv[3:] == ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={path}"]
    assert any("from step 3" in note for note in found.notes)


def test_a_torn_one_is_renamed_told_and_passed_over(tmp_path: Path) -> None:
    before, torn = save(tmp_path, 3), save(tmp_path, 4)
    (torn / "actor" / "model_world_size_2_rank_0.pt").write_bytes(b"")

    found = continued(training(tmp_path), 2)

    assert found.argv[-1] == f"trainer.resume_from_path={before}"
    assert any("global_step_4 has actor/model_world_size_2_rank_0.pt cut short" in note for note in found.notes)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "global_step_3",
        "global_step_4.torn-2",
        checkpoints.LATEST,
    ]
    assert (tmp_path / checkpoints.LATEST).read_text() == "3"


def test_with_torn_ones_alone_verl_is_kept_from_loading_them(tmp_path: Path) -> None:
    (save(tmp_path, 1) / "data.pt").write_bytes(b"")

    found = continued(training(tmp_path), 2)

    assert found.argv[-1] == "trainer.resume_mode=disable"
    assert [path.name for path in tmp_path.iterdir()] == ["global_step_1.torn-2"]


@pytest.mark.parametrize("word", ["trainer.resume_mode=disable", "+trainer.resume_from_path=/x/global_step_1"])
def test_who_says_where_to_resume_decides_alone(tmp_path: Path, word: str) -> None:
    torn = save(tmp_path, 1)
    (torn / "data.pt").write_bytes(b"")

    assert continued(training(tmp_path, word), 2).argv == training(tmp_path, word).argv
    assert torn.is_dir()


def test_a_folder_that_cannot_be_read_ends_with_66_and_no_training_begins_anew(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / checkpoints.LATEST).unlink()
    (tmp_path / checkpoints.LATEST).mkdir()

    with pytest.raises(InputUnavailable, match="cannot be read"):
        continued(training(tmp_path), 1)
