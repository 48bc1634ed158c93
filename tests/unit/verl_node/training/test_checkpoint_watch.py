from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from verl_node.errors import TimeNearlyOver
from verl_node.training import checkpoint_watch
from verl_node.training.checkpoint_watch import Saves

from tests.unit.verl_node.training.test_checkpoints import save


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkpoints' folder; the run directory is the one above it."""
    monkeypatch.setattr(checkpoint_watch, "_NOTICE_S", 0.01)
    monkeypatch.setattr(checkpoint_watch, "_LOOK_S", 0.01)
    (tmp_path / "checkpoints").mkdir()
    return tmp_path / "checkpoints"


def seen_by(folder: Path, said: list[str]) -> Saves:
    return Saves(folder, folder.parent, said.append)


def test_a_new_checkpoint_is_noted_and_an_earlier_attempts_is_not(folder: Path) -> None:
    note = folder.parent / checkpoint_watch.SAVED
    save(folder, 3)

    async def scenario() -> None:
        watched = seen_by(folder, [])
        assert await watched.look() == 3
        assert not note.exists()
        save(folder, 5)
        watch = asyncio.ensure_future(watched.watch())
        while not note.exists():
            await asyncio.sleep(0.01)
        watch.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 5))
    assert note.read_text() == "5\n"


def test_after_slurms_notice_training_ends_at_its_next_checkpoint(folder: Path) -> None:
    said: list[str] = []
    save(folder, 1)

    async def scenario() -> None:
        watched = seen_by(folder, said)
        end = asyncio.ensure_future(watched.until_time_is_over())
        await asyncio.sleep(0.05)
        assert not end.done()
        (folder.parent / checkpoint_watch.NOTICE).write_text(f"{time.time() + 100:.0f}\n")
        await asyncio.sleep(0.1)
        assert not end.done()
        save(folder, 2)
        await asyncio.sleep(0.1)
        assert not end.done(), "the metrics of that step are still to come"
        watched.logged = 2
        with pytest.raises(TimeNearlyOver, match="at the checkpoint of step 2") as seen:
            await asyncio.wait_for(end, 5)
        assert (seen.value.code, seen.value.stage) == (76, "lead")

    asyncio.run(scenario())
    assert any("at the latest in" in line for line in said)


def test_a_notice_without_another_checkpoint_ends_training_at_its_deadline(folder: Path) -> None:
    (folder.parent / checkpoint_watch.NOTICE).write_text("1\n")

    with pytest.raises(TimeNearlyOver, match="without another checkpoint"):
        asyncio.run(asyncio.wait_for(seen_by(folder, []).until_time_is_over(), 5))


def test_a_folder_that_cannot_be_read_is_told_once(folder: Path) -> None:
    said: list[str] = []
    (folder / "latest_checkpointed_iteration.txt").mkdir()

    async def scenario() -> None:
        watched = seen_by(folder, said)
        assert await watched.look() == await watched.look() == 0

    asyncio.run(scenario())
    assert len(said) == 1
