from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from verl_node.errors import TimeNearlyOver
from verl_node.training import checkpoint_watch
from verl_node.training.checkpoint_watch import CheckpointWatch

from tests.unit.verl_node.training.test_checkpoints import save


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of checkpoints; its parent is the run directory."""
    monkeypatch.setattr(checkpoint_watch, "_NOTICE_POLL_S", 0.01)
    monkeypatch.setattr(checkpoint_watch, "_POLL_S", 0.01)
    (tmp_path / "checkpoints").mkdir()
    return tmp_path / "checkpoints"


def watch_of(folder: Path, logged: list[str]) -> CheckpointWatch:
    return CheckpointWatch(folder, folder.parent, logged.append)


def test_only_new_checkpoints_of_this_attempt_are_recorded(folder: Path) -> None:
    record = folder.parent / checkpoint_watch.SAVED
    save(folder, 3)

    async def scenario() -> None:
        watched = watch_of(folder, [])
        assert await watched.check() == 3
        assert not record.exists()
        save(folder, 5)
        watch = asyncio.ensure_future(watched.watch())
        while not record.exists():
            await asyncio.sleep(0.01)
        watch.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 5))
    assert record.read_text() == "5\n"


def test_training_shutdown_at_the_next_checkpoint_after_the_notice(folder: Path) -> None:
    logged: list[str] = []
    save(folder, 1)

    async def scenario() -> None:
        watched = watch_of(folder, logged)
        end = asyncio.ensure_future(watched.stop_after_notice())
        await asyncio.sleep(0.05)
        assert not end.done()
        (folder.parent / checkpoint_watch.NOTICE).write_text(f"{time.time() + 100:.0f}\n")
        await asyncio.sleep(0.1)
        assert not end.done()
        save(folder, 2)
        await asyncio.sleep(0.1)
        assert not end.done(), "the metrics of that step are not logged yet"
        watched.logged = 2
        with pytest.raises(TimeNearlyOver, match="at the checkpoint of step 2") as seen:
            await asyncio.wait_for(end, 5)
        assert (seen.value.code, seen.value.stage) == (76, "lead")

    asyncio.run(scenario())
    assert any("at the latest in" in line for line in logged)


def test_training_shutdown_at_the_deadline_without_another_checkpoint(folder: Path) -> None:
    (folder.parent / checkpoint_watch.NOTICE).write_text("1\n")

    with pytest.raises(TimeNearlyOver, match="without another checkpoint"):
        asyncio.run(asyncio.wait_for(watch_of(folder, []).stop_after_notice(), 5))


def test_unreadable_folder_is_logged_once(folder: Path) -> None:
    logged: list[str] = []
    (folder / "latest_checkpointed_iteration.txt").mkdir()

    async def scenario() -> None:
        watched = watch_of(folder, logged)
        assert await watched.check() == await watched.check() == 0

    asyncio.run(scenario())
    assert len(logged) == 1
