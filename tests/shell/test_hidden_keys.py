"""~/.ssh is hidden from the container at every path of its home."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.shell.container import mounted
from tests.support.shell.rig import Rig


@pytest.fixture
def key(rig: Rig) -> Path:
    file = rig.home / ".ssh" / "id_rsa"
    file.parent.mkdir(mode=0o700)
    file.write_text("PRIVATE KEY")
    return file


def reachable(rig: Rig, key: Path) -> list[str]:
    """The paths of the key in a container with the mounts of the last `docker run`."""
    mounts = mounted(rig.docker_run())
    hidden = {target for target, (source, _) in mounts.items() if not source}
    found = set()
    for target, (source, _) in mounts.items():
        for folder, _, names in os.walk(source) if source.startswith(str(rig.root)) else ():
            if key.name in names and key.samefile(Path(folder) / key.name):
                found.add(os.path.normpath(f"{target}/{os.path.relpath(folder, source)}"))
    return sorted(found - hidden)


def test_hidden_in_a_home_mounted_at_its_path(rig: Rig, key: Path) -> None:
    assert rig.node().returncode == 0

    assert mounted(rig.docker_run())[str(key.parent)] == ("", "")
    assert reachable(rig, key) == []


def test_hidden_if_home_is_a_link_and_the_submit_folder_its_target(rig: Rig, key: Path) -> None:
    (rig.root / "alice").symlink_to(rig.home)

    assert rig.node(HOME=str(rig.root / "alice"), SLURM_SUBMIT_DIR=str(rig.home)).returncode == 0

    assert mounted(rig.docker_run())[str(rig.root / "alice" / ".ssh")] == ("", "")
    assert reachable(rig, key) == []


@pytest.mark.parametrize("linked", [False, True])
def test_hidden_if_the_submit_folder_is_above_the_home(rig: Rig, key: Path, linked: bool) -> None:
    (rig.root / "alice").symlink_to(rig.home)
    home = rig.root / "alice" if linked else rig.home

    assert rig.node(HOME=str(home), SLURM_SUBMIT_DIR=str(rig.root)).returncode == 0

    assert reachable(rig, key) == []


def test_hidden_if_the_user_mounts_a_folder_above_the_home_elsewhere(rig: Rig, key: Path) -> None:
    assert rig.node(VERLJOB_MOUNTS=f"{rig.root}:/everything:ro,{rig.home}:/mine").returncode == 0

    mounts = mounted(rig.docker_run())
    assert mounts["/everything/home/.ssh"] == mounts["/mine/.ssh"] == ("", "")
    assert reachable(rig, key) == []


@pytest.mark.parametrize("server", ["server:", "[fd00::1]:"])
def test_hidden_if_the_homes_file_server_is_mounted_too(server: str, rig: Rig, key: Path) -> None:
    """/home/alice is server:/vol7/u/alice, and /vol7 is mounted too; a link stands in for the second mount."""
    disk = rig.root / "vol7"
    (disk / "u").mkdir(parents=True)
    (disk / "u" / "alice").symlink_to(rig.home)
    table = rig.root / "mountinfo"
    line = "29 1 0:26 / {} rw,relatime shared:1 - nfs4 {} rw,vers=4.2\n"
    table.write_text(line.format("/", "none") + line.format(rig.home, f"{server}/vol7/u/alice"))

    assert rig.node(VERLJOB_MOUNTS=f"{disk}:/vol7", MOUNTS_TABLE=str(table)).returncode == 0

    assert mounted(rig.docker_run())["/vol7/u/alice/.ssh"] == ("", "")


def test_hidden_at_the_target_of_a_linked_key_folder(rig: Rig, key: Path) -> None:
    keys = rig.work / "keys"
    key.parent.rename(keys)
    key.parent.symlink_to(keys)

    assert rig.node().returncode == 0

    assert mounted(rig.docker_run())[str(keys)] == ("", "")
    assert reachable(rig, keys / key.name) == []


def test_without_keys_nothing_is_hidden(rig: Rig) -> None:
    rig.node()

    assert not [target for target in mounted(rig.docker_run()) if target.endswith(".ssh")]
