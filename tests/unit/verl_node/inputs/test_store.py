from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from pathlib import Path

import pytest
from verl_node.errors import InputUnavailable, PermissionMissing
from verl_node.inputs.data import store

from tests.support.paths import ENTRYPOINTS

MAKE_SLOWLY = """
import sys, time
from pathlib import Path
from verl_node.inputs.data import store

def write(folder):
    print("made", flush=True)
    (folder / "train").write_text("a")
    time.sleep(0.3)
    (folder / "test").write_text("b")

folder = store.make(Path(sys.argv[1]), write, fingerprint="1")
assert store.is_complete(folder, "1"), sorted(folder.iterdir())
"""


def write(folder: Path) -> None:
    (folder / "train").write_text("many rows")


def write_never(folder: Path) -> None:
    raise AssertionError("a complete folder is not made again")


def files_beside(folder: Path) -> list[str]:
    """Return the names in a folder's parent, without its lock file."""
    return sorted(path.name for path in folder.parent.iterdir() if not path.name.endswith(".lock"))


def test_complete_folder_is_kept(tmp_path: Path) -> None:
    folder = store.make(tmp_path / "set", write, fingerprint="1")
    assert store.make(folder, write_never, fingerprint="1") == folder
    assert files_beside(folder) == ["set"]


@pytest.mark.parametrize("damage", ["cut", "other bytes", "gone", "no manifest", "broken manifest"])
def test_incomplete_folder_is_made_again(tmp_path: Path, damage: str) -> None:
    folder = store.make(tmp_path / "set", write, fingerprint="1")
    if damage == "cut":
        (folder / "train").write_text("many")
    elif damage == "other bytes":
        (folder / "train").write_text("lots rows")
    elif damage == "gone":
        (folder / "train").unlink()
    elif damage == "no manifest":
        (folder / store.MANIFEST).unlink()
    else:
        (folder / store.MANIFEST).write_text('{"fingerprint": "1", "files":')
    assert not store.is_complete(folder, "1")
    store.make(folder, write, fingerprint="1")
    assert store.is_complete(folder, "1")
    assert files_beside(folder) == ["set"]


def test_new_fingerprint_replaces_the_folder(tmp_path: Path) -> None:
    def write_other(folder: Path) -> None:
        (folder / "train").write_text("new rows")

    folder = store.make(tmp_path / "set", write, fingerprint="1")
    store.make(folder, write_other, fingerprint="2")
    assert (folder / "train").read_text() == "new rows"


def test_general_fingerprint_matches_a_more_specific_one(tmp_path: Path) -> None:
    folder = store.make(tmp_path / "set", write, fingerprint="1 abc")
    assert store.is_complete(folder, "1")
    assert not store.is_complete(folder, "1 ab")
    assert not store.is_complete(folder, "2")


def test_failed_write_keeps_the_old_folder(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "train").write_text("half")
        raise OSError(28, "No space files_beside on device")

    folder = store.make(tmp_path / "set", write, fingerprint="1")
    with pytest.raises(InputUnavailable, match="No space files_beside"):
        store.make(folder, fail, fingerprint="2")
    assert (folder / "train").read_text() == "many rows"
    assert files_beside(folder) == ["set"]


def test_unwritable_data_folder_is_a_missing_permission(tmp_path: Path) -> None:
    def forbidden(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", "/data/set")

    with pytest.raises(PermissionMissing, match="cannot use /data/set") as seen:
        store.make(tmp_path / "set", forbidden, fingerprint="1")
    assert seen.value.code == 77


def test_concurrent_nodes_make_the_folder_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAKE_SLOWLY, str(tmp_path / "set")]
    nodes = [
        subprocess.Popen(command, env={"PYTHONPATH": str(ENTRYPOINTS)}, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    outputs = [node.communicate(timeout=30)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0, 0, 0]
    assert "".join(outputs).split() == ["made"]


def test_first_rename_wins_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    def overtaken(folder: Path) -> None:
        (folder / "train").write_text("the slow one's")
        store.make(tmp_path / "set", write, fingerprint="1")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    folder = tmp_path / "set"
    monkeypatch.setattr(store.socket, "gethostname", iter(["slow", "fast"]).__next__)
    store.make(folder, overtaken, fingerprint="1")
    assert (folder / "train").read_text() == "many rows"
    assert files_beside(folder) == ["set"]


def test_lock_that_is_never_released_exits_with_66(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOCK_TIMEOUT_S", 0.1)
    with (tmp_path / ".set.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        begin = time.monotonic()
        with pytest.raises(InputUnavailable, match=r"another process holds .*\.set\.lock"):
            store.make(tmp_path / "set", write, fingerprint="1")
    assert time.monotonic() - begin < 5
