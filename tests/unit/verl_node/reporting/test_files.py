"""Links, FIFOs and files that another account plants in a shared folder are neither followed nor trusted."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from verl_node.errors import InputUnavailable, PermissionMissing
from verl_node.gpu.usage import Watch
from verl_node.inputs.data import store
from verl_node.reporting import events, files, node_dirs
from verl_node.reporting.verdict import write_by_rename
from verl_node.settings.settings import Settings
from verl_node.training import checkpoints, metrics
from verl_node.training.metrics import MetricsWriter
from verl_node.training.resume import resumed

from tests.support.shell.other_account import NEEDS_ROOT, UID, attack
from tests.unit.verl_node.training.test_checkpoints import save
from tests.unit.verl_node.training.test_resume import training


@pytest.fixture(autouse=True)
def ten_seconds() -> Iterator[None]:
    """A test that blocks on a FIFO fails after ten seconds."""

    def fail(*_: object) -> None:
        pytest.fail("still waiting after 10 s")  # no OSError, which the code at hand may answer

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that every account may write, beside the victim's diary."""
    (tmp_path / "diary").write_text("mine")
    monkeypatch.setenv("DIARY", str(tmp_path / "diary"))
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    return shared


def journal(folder: Path) -> None:
    events.to_file(folder / "events.jsonl")(events.Event.now("n1", "train", "note"))


def rows(folder: Path) -> None:
    MetricsWriter(folder / "metrics.jsonl", "n1", Watch(list), None, lambda _: None).write_row({"step": 1})


WRITERS: dict[str, Callable[[Path], object]] = {
    "events.jsonl": journal,
    "metrics.jsonl": rows,
    "result.json": lambda folder: write_by_rename(folder / "result.json", "{}"),
    ".set.lock": lambda folder: store.make(folder / "set", lambda new: (new / "a").touch(), fingerprint="1"),
}


@NEEDS_ROOT
@pytest.mark.parametrize("plant", ['ln -s "$DIARY"', "mkfifo -m 666"])
@pytest.mark.parametrize("name", WRITERS)
def test_no_write_follows_a_link_or_waits_for_a_fifo(folder: Path, name: str, plant: str) -> None:
    attack(folder, f'{plant} "{name}"')

    try:
        WRITERS[name](folder)
    except InputUnavailable as error:
        assert str(folder) in error.cause  # noqa: PT017  the data's lock: the job ends with 66

    assert (folder.parent / "diary").read_text() == "mine"


@NEEDS_ROOT
def test_the_name_of_a_temporary_file_cannot_be_guessed(folder: Path) -> None:
    attack(folder, f'ln -s "$DIARY" .result.json.{os.getpid()}; ln -s "$DIARY" result.json.new')

    write_by_rename(folder / "result.json", "{}")

    assert (folder.parent / "diary").read_text() == "mine"
    assert (folder / "result.json").read_text() == "{}"


@NEEDS_ROOT
@pytest.mark.parametrize("plant", ['ln -s "$DIARY"', "mkfifo -m 666", "mkdir"])
def test_no_read_follows_a_link_or_waits_for_a_fifo(folder: Path, plant: str) -> None:
    attack(folder, f"mkdir -p nodes/0-n1; for name in verl.jsonl expires nodes/0-n1/node.log; do {plant} $name; done")

    for read in (lambda: metrics.new_records(folder / "verl.jsonl", 0), lambda: files.read(folder / "expires")):
        with pytest.raises(OSError, match=r"is not a regular file|symbolic links"):
            read()
    assert node_dirs.NodeDirs(folder, ["n1"]).last_line(0) == ""


def test_a_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "expires").write_bytes(b"1" * (files.MOST_BYTES + 1))

    assert len(files.read(tmp_path / "expires")) == files.MOST_BYTES


def program() -> str:
    """A program that torch.load would run, in base64."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr("archive/data.pkl", b"cposix\nsystem\n(S'touch ran'\ntR.")
    return base64.b64encode(content.getvalue()).decode()


@pytest.fixture
def planted(folder: Path) -> Path:
    """A folder of checkpoints with a newer one of another account, which is complete and a program."""
    save(folder, 3)
    (folder / checkpoints.LATEST).unlink()
    names = "global_step_1000/data.pt global_step_1000/actor/model_world_size_1_rank_0.pt"
    writes = f"for name in {names}; do base64 -d <<< {program()} > $name; done"
    attack(folder, f"mkdir -p global_step_1000/actor; {writes}")
    return folder


@NEEDS_ROOT
def test_a_training_never_resumes_from_a_planted_checkpoint(planted: Path) -> None:
    assert checkpoints.newest(planted).step == 1000
    for mode in (0o777, 0o755):  # what was planted stays when the folder is closed
        planted.chmod(mode)
        with pytest.raises(PermissionMissing) as refused:
            resumed(training(planted), 1)
    assert refused.value.code == 77
    assert f"{planted}/global_step_1000 belongs to uid {UID}" in refused.value.cause


@NEEDS_ROOT
def test_a_group_can_share_its_checkpoints(planted: Path) -> None:
    assert any("from step 1000" in note for note in resumed(training(planted), 1, shared=True).notes)


@NEEDS_ROOT
def test_a_folder_of_another_account_is_refused_before_anything_in_it_is_read(folder: Path) -> None:
    attack(folder, f"mkdir checkpoints; mkfifo checkpoints/{checkpoints.LATEST}; mkdir checkpoints/global_step_1")

    with pytest.raises(PermissionMissing, match=f"checkpoints belongs to uid {UID}"):
        resumed(training(folder / "checkpoints"), 1)


def one_shard(folder: Path) -> Path:
    return folder / "global_step_3" / "actor" / "model_world_size_2_rank_1.pt"


def exchanged(folder: Path) -> None:
    one_shard(folder).rename(folder / "elsewhere")
    one_shard(folder).symlink_to(folder / "elsewhere")


LOOSE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a shard that a group may write": (lambda folder: one_shard(folder).chmod(0o664), "can be written by other"),
    "a folder that all may write": (lambda folder: one_shard(folder).parent.chmod(0o777), "can be written by other"),
    "the folder of all": (lambda folder: folder.chmod(0o775), r"can be written by other accounts \(drwxrwxr-x"),
    "the trainer's own note": (lambda folder: (folder / checkpoints.LATEST).chmod(0o666), "can be written by other"),
    "a shard that is a link": (exchanged, "is a link"),
}


@pytest.mark.parametrize("what", LOOSE)
def test_a_checkpoint_file_that_others_can_write_is_refused(tmp_path: Path, what: str) -> None:
    save(tmp_path, 3)
    loosen, words = LOOSE[what]
    assert resumed(training(tmp_path), 1).notes
    loosen(tmp_path)

    with pytest.raises(PermissionMissing, match=words) as refused:
        resumed(training(tmp_path), 1)
    assert "chmod -R go-w" in refused.value.fix
    assert "VERLJOB_SHARED_FOLDERS=1" in refused.value.fix


def test_the_account_may_link_to_its_checkpoints(tmp_path: Path) -> None:
    save(tmp_path / "disk", 3)
    (tmp_path / "checkpoints").symlink_to(tmp_path / "disk")

    assert any("from step 3" in note for note in resumed(training(tmp_path / "checkpoints"), 1).notes)


ODD = ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"]


@pytest.mark.parametrize("odd", ODD, ids=ascii)
def test_an_override_ends_at_a_line_feed_and_nowhere_else(odd: str) -> None:
    """launch.sh writes one per line; any other line end of Unicode is part of the value."""
    word = f"data.note=a{odd}trainer.default_local_dir=/evil"

    told = Settings.from_env({"VERLJOB_OVERRIDES": f"{word}\nb=2\n"}).overrides

    assert told == (word, "b=2")


@pytest.mark.parametrize("odd", ODD, ids=ascii)
def test_a_step_of_verls_log_ends_at_a_line_feed_and_nowhere_else(tmp_path: Path, odd: str) -> None:
    text = json.dumps({"step": 1, "data": {f"a{odd}b": 1}}, ensure_ascii=False)
    (tmp_path / "verl.jsonl").write_bytes(f"{text}\n".encode())

    if odd in "\x0b\x0c\x1c\r":  # escaped by every writer of JSON
        assert odd not in text
    assert metrics.new_records(tmp_path / "verl.jsonl", 0)[0] == [(1, {f"a{odd}b": 1})]
