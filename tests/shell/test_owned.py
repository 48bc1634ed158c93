"""Another account that can write to the submit folder gets no access to the job's files and cannot run code."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.shell.other_account import NEEDS_ROOT, UID, attack, contents
from tests.support.shell.rig import CHECKOUT, Rig, mode, recorded
from tests.support.shell.step import DEMO, SUCCESS, last_line

pytestmark = NEEDS_ROOT

LINKS = """
mkdir -p verljob/20/attempt-1/nodes verljob/20/checkpoints/global_step_1000
chmod -R 777 verljob
cd verljob/20/attempt-1
for name in overrides result.json result.json.new .expires nodes/0-n1; do ln -s "$DIARY" "$name"; done
"""
FOLDERS = "umask 0; mkdir -p verljob/20/attempt-1/nodes/0-n1 verljob/20/attempt-1/nodes/1-n2"
FIFOS = "cd verljob/20/attempt-1; mkfifo -m 666 result.json checks.json explanation expires nodes/{0-n1,1-n2}/verdict"


@pytest.fixture
def diary(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the victim; the attacker knows its path."""
    file = rig.home / "diary"
    file.write_text("mine")
    file.chmod(0o600)
    monkeypatch.setenv("DIARY", str(file))
    return file


def refused(rig: Rig, *about: str, **more: str) -> None:
    """Check that the launch exits with 77 in time, starts nothing and changes nothing in the folder."""
    rig.fake("step", SUCCESS)
    before = contents(rig.work)
    began = time.monotonic()
    done = rig.launch(DEMO, script=None, **more)
    assert time.monotonic() - began < 10
    assert done.returncode == 77, done.stdout + done.stderr
    for text in about:
        assert text in last_line(done)
    assert not (rig.root / "fake" / "srun.argv").exists()
    assert contents(rig.work) == before


def opened(rig: Rig, script: str, *, closed: bool = True) -> None:
    """Run the attacker's script while the submit folder is writable by all."""
    rig.work.chmod(0o777)
    attack(rig.work, script)
    if closed:
        rig.work.chmod(0o755)


def test_a_submit_folder_writable_by_others_is_refused_with_its_owner(rig: Rig) -> None:
    """Python searches it for modules first, and its folders could be replaced later."""
    rig.work.chmod(0o777)

    refused(rig, f"{rig.work} on n1", "can be written by other accounts (drwxrwxrwx, owner root (uid 0))", "chmod go-w")


def test_a_planted_job_folder_full_of_links_is_refused(rig: Rig, diary: Path) -> None:
    opened(rig, LINKS)

    refused(rig, f"{rig.work}/verljob on n1 belongs to", f"(uid {UID})")
    assert diary.read_text() == "mine"


def test_a_planted_job_folder_in_an_own_folder_is_refused(rig: Rig, diary: Path) -> None:
    (rig.work / "verljob").mkdir()
    (rig.work / "verljob").chmod(0o777)
    attack(rig.work, LINKS.replace("chmod -R 777 verljob", "chmod -R 777 verljob/20"))
    (rig.work / "verljob").chmod(0o755)

    refused(rig, f"{rig.work}/verljob/20 on n1 belongs to", f"(uid {UID})")
    assert diary.read_text() == "mine"


def test_a_planted_link_is_refused_even_if_a_group_shares_its_folders(rig: Rig) -> None:
    opened(rig, f"ln -s {rig.home} verljob", closed=False)

    refused(rig, f"{rig.work}/verljob on n1 is a link that belongs to", f"(uid {UID})", VERLJOB_SHARED_FOLDERS="1")
    assert list(rig.home.iterdir()) == []


def test_a_replaced_folder_is_refused_at_the_next_attempt(rig: Rig) -> None:
    """Slurm held the job for two minutes, in which its folder was replaced."""
    rig.fake("step", SUCCESS)
    rig.launch(DEMO)
    (rig.root / "fake" / "srun.argv").unlink()
    rig.work.chmod(0o777)
    attack(rig.work, "mv verljob ours; mkdir -p verljob/20/checkpoints; chmod -R 777 verljob")
    rig.work.chmod(0o755)

    refused(rig, f"{rig.work}/verljob on n1 belongs to", f"(uid {UID})", SLURM_RESTART_COUNT="1")


@pytest.mark.parametrize("name", ["VERLJOB_RUN_DIR", "VERLJOB_CHECKPOINTS"])
def test_owner_and_mode_of_a_given_folder_are_checked(rig: Rig, name: str) -> None:
    opened(rig, "mkdir theirs; chmod 777 theirs")
    own = rig.work / "own"
    own.mkdir()
    own.chmod(0o1777)

    refusals = {rig.work / "theirs": f"belongs to nobody (uid {UID})", own: "can be written by other accounts"}
    for folder, message in refusals.items():
        done = rig.launch(DEMO, script=None, **{name: str(folder)})
        assert done.returncode == 77
        assert f"{folder} on n1 {message}" in last_line(done)
        assert contents(folder) == {}


def test_fifos_do_not_block_a_launch_in_shared_folders(rig: Rig) -> None:
    opened(rig, f"{FOLDERS}; {FIFOS}", closed=False)
    rig.fake(
        "step", f"setpriv --reuid={UID} --regid={UID} --clear-groups /bin/bash -ec 'PATH=/bin; {FIFOS}'\n{SUCCESS}"
    )

    began = time.monotonic()
    done = rig.launch(DEMO, VERLJOB_SHARED_FOLDERS="1")

    assert time.monotonic() - began < 10
    assert done.returncode == 76
    assert "no node left a verdict" in last_line(done)
    assert (rig.run_dir / "result.json").is_file()


@pytest.mark.parametrize("plant", ["ln -s '$DIARY' node.log", "mkfifo -m 666 node.log"])
def test_a_node_log_that_is_a_link_or_fifo_is_refused(rig: Rig, diary: Path, plant: str) -> None:
    folder = rig.run_dir / "nodes" / "0-n1"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    attack(folder, plant.replace("'$DIARY'", '"$DIARY"'))
    folder.chmod(0o755)

    done = rig.node()

    assert done.returncode == 77
    assert f"cause={folder}/node.log is not a file of this account" in done.stderr
    assert diary.read_text() == "mine"


def test_a_node_folder_of_another_account_is_refused_and_stays_unchanged(rig: Rig) -> None:
    nodes = rig.run_dir / "nodes"
    nodes.mkdir(parents=True)
    nodes.chmod(0o777)
    attack(nodes, "mkdir 0-n1 && chmod 777 0-n1 && ln -s /dev/null 0-n1/verdict")
    nodes.chmod(0o755)
    before = contents(nodes)

    done = rig.node()

    assert done.returncode == 77
    assert "code=77" in done.stderr
    assert f"{nodes}/0-n1 on n1 belongs to" in done.stderr
    assert contents(nodes) == before


def test_a_node_checks_the_owner_of_the_checkpoints(rig: Rig) -> None:
    opened(rig, "mkdir theirs; chmod 777 theirs")

    done = rig.node(VERLJOB_CHECKPOINTS=str(rig.work / "theirs"))

    assert done.returncode == 77
    assert f"{rig.work}/theirs on n1 belongs to" in rig.verdict()["cause"]


def with_umask(rig: Rig, umask: int, **more: str) -> subprocess.CompletedProcess[str]:
    before = os.umask(umask)
    try:
        return rig.launch(DEMO, script=None, **more)
    finally:
        os.umask(before)


def test_files_of_a_job_are_writable_only_by_its_account(rig: Rig) -> None:
    rig.fake("step", f'umask > "$FAKE/umask"\n{SUCCESS}')

    assert with_umask(rig, 0o002).returncode == 0

    assert rig.faked("umask") == "0022\n"
    made = [rig.work / "verljob", *(rig.work / "verljob").rglob("*")]
    assert [path for path in made if mode(path) & 0o022] == []


def test_a_stricter_umask_and_that_of_a_sharing_group_are_kept(rig: Rig) -> None:
    rig.fake("step", SUCCESS)

    with_umask(rig, 0o077)
    assert mode(rig.run_dir) == 0o700

    with_umask(rig, 0o007, SLURM_JOB_ID="21", VERLJOB_SHARED_FOLDERS="1")
    assert mode(rig.work / "verljob" / "21" / "attempt-1") == 0o770


def test_an_accounts_private_group_may_write(rig: Rig) -> None:
    """umask 002 is usual with private groups."""
    rig.fake("step", SUCCESS)
    rig.work.chmod(0o775)

    assert rig.launch(DEMO).returncode == 0

    os.chown(rig.work, 0, UID)
    done = rig.launch(DEMO)
    assert done.returncode == 77
    assert "drwxrwxr-x" in last_line(done)


def test_a_second_launch_of_an_allocation_uses_the_same_folder(rig: Rig) -> None:
    rig.fake("step", SUCCESS)

    assert [rig.launch(DEMO).returncode for _ in range(2)] == [0, 0]


def test_an_own_link_may_lead_to_another_disk(rig: Rig) -> None:
    rig.fake("step", SUCCESS)
    disk = rig.root / "disk"
    disk.mkdir()
    (rig.work / "verljob").symlink_to(disk)

    assert rig.launch(DEMO).returncode == 0
    assert (disk / "20" / "attempt-1" / "result.json").exists()


def test_another_value_of_shared_folders_is_refused(rig: Rig) -> None:
    done = rig.launch(DEMO, VERLJOB_SHARED_FOLDERS="yes")

    assert done.returncode == 64
    assert "VERLJOB_SHARED_FOLDERS is 'yes'" in last_line(done)


@pytest.mark.parametrize("submitted_from", [".", "slurm"])
def test_a_script_from_stdin_refuses_a_planted_checkout(rig: Rig, submitted_from: str) -> None:
    rig.fake("job", recorded("stdin"))
    spooled = rig.root / "slurm_script"
    spooled.write_text((CHECKOUT / "slurm" / "launch.sh").read_text())
    opened(rig, "umask 0; mkdir -p slurm/lib/launch; : > slurm/node.sh; echo 'touch ran' > slurm/lib/launch/main.sh")
    (rig.work / "slurm" / "node.sh").write_text((CHECKOUT / "slurm" / "node.sh").read_text())  # of the right version
    folder = str(rig.work / submitted_from)

    done = rig.launch(script=spooled, SLURM_SUBMIT_DIR=folder)

    assert done.returncode == 77
    assert f"others may have changed {rig.work}" in last_line(done)
    assert f"owner uid {UID}" in last_line(done)
    assert "export VERLJOB_HOME=" in last_line(done)
    assert not (rig.work / "ran").exists()
    named = rig.launch("no_such", script=spooled, SLURM_SUBMIT_DIR=folder, VERLJOB_HOME=str(CHECKOUT))
    assert "no recipe 'no_such'" in last_line(named)


@pytest.mark.parametrize(
    "planted",
    [
        "slurm/lib/common/verdict.sh",
        "entrypoints/verl_node/checks/node/rdma.py",
        "entrypoints/verl_node/inputs/data/.new/a.pyc",
    ],
)
def test_a_checkout_in_the_submit_folder_with_a_writable_file_is_refused(rig: Rig, planted: str) -> None:
    rig.fake("job", recorded("stdin"))
    for folder in ("slurm", "entrypoints"):
        shutil.copytree(CHECKOUT / folder, rig.work / folder, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["chmod", "-R", "go-w", str(rig.work)], check=True)
    path = rig.work / planted
    path.parent.mkdir(mode=0o755, exist_ok=True)
    path.touch()
    path.chmod(0o666)
    script = rig.work / "slurm" / "launch.sh"

    done = rig.launch("no_such", script=spooled_copy(rig, script), SLURM_SUBMIT_DIR=str(rig.work))
    path.chmod(0o644)
    mended = rig.launch("no_such", script=spooled_copy(rig, script), SLURM_SUBMIT_DIR=str(rig.work))

    assert done.returncode == 77
    assert planted in last_line(done)
    assert "no recipe 'no_such'" in last_line(mended)


def spooled_copy(rig: Rig, script: Path) -> Path:
    """The copy that Slurm runs of a script from stdin."""
    spooled = rig.root / "slurm_script"
    shutil.copy(script, spooled)
    return spooled
