"""slurm/lib/node/compile_cache.sh: compiled code is kept for each image, by one job at a time and by this account."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.paths import CHECKOUT
from tests.support.shell import other_account
from tests.support.shell.container import STAYS, mounted, running, terminate, values
from tests.support.shell.rig import Rig, leftovers, mode

DIGEST = "0123456789abcdef" * 4
KEPT = DIGEST[:16]
MOUNTED = "/run/verljob/cache"
LIBRARIES = "common/log node/compile_cache"
OPEN = 'LOCAL=$PWD IMAGE_ID=sha256:$DIGEST; compile_cache::open; echo "$COMPILE_CACHE"'


@pytest.fixture
def parent(rig: Rig) -> Path:
    """Return the folder in which compiled code is kept by default."""
    rig.fake("images", f"verl.cpu:latest\tsha256:{DIGEST}\n")
    return rig.root / "local" / f"verljob-cache-{os.getuid()}"


def open_cache(rig: Rig, digest: str = DIGEST) -> str:
    """Source the library and open the cache of an image; return the folder that a job would use."""
    done = rig.source(LIBRARIES, OPEN, DIGEST=digest)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def make_kept(parent: Path, name: str, kib: int, used: int) -> Path:
    """Make the folder of an image with a file, used at a time in seconds."""
    folder = parent / name
    folder.mkdir(parents=True, mode=0o700)
    parent.chmod(0o700)
    (folder / "code").write_bytes(os.urandom(kib << 10))
    for path in (folder / "code", folder):
        os.utime(path, (used, used))
    return folder


def test_the_container_has_the_folder_of_its_image_and_the_next_job_finds_it(rig: Rig, parent: Path) -> None:
    done = rig.node()

    argv = rig.docker_run()
    assert mounted(argv)[MOUNTED] == (str(parent / KEPT), "")
    assert "VERLJOB_COMPILE_CACHE" in values(argv, "--env")
    assert f"VERLJOB_COMPILE_CACHE={MOUNTED}\n" in rig.faked("run.env")
    assert [mode(folder) for folder in (parent, parent / KEPT)] == [0o700, 0o700]
    assert f"compiled code of earlier jobs: 0 MiB in {parent / KEPT}" in done.stdout
    (parent / KEPT / "code").write_bytes(os.urandom(3 << 20))

    done = rig.node()

    assert f"compiled code of earlier jobs: 3 MiB in {parent / KEPT}" in done.stdout
    assert f"compiled code is kept in {parent / KEPT} for later jobs: 3 MiB" in done.stdout
    assert leftovers(rig) == [parent.name]


def test_0_keeps_nothing(rig: Rig, parent: Path) -> None:
    rig.node(VERLJOB_COMPILE_CACHE="0")

    assert not parent.exists()
    assert MOUNTED not in mounted(rig.docker_run())
    assert "VERLJOB_COMPILE_CACHE" not in rig.faked("run.env")


def test_a_relative_path_exits_with_64(rig: Rig, parent: Path) -> None:
    done = rig.node(VERLJOB_COMPILE_CACHE="kept")

    assert done.returncode == 64
    assert rig.verdict()["cause"] == "VERLJOB_COMPILE_CACHE is 'kept'"


def test_a_second_job_gets_a_copy_which_is_removed_with_it(rig: Rig, parent: Path) -> None:
    (make_kept(parent, KEPT, 1, used=1) / "sub").mkdir()

    with running(rig, STAYS) as first:
        copied = open_cache(rig)
        terminate(first)

    assert copied == f"{rig.work}/cache"
    assert (rig.work / "cache" / "code").read_bytes() == (parent / KEPT / "code").read_bytes()
    assert (rig.work / "cache" / "sub").is_dir()
    shutil.rmtree(copied)
    assert open_cache(rig) == str(parent / KEPT)  # the first job has ended


def test_an_incomplete_copy_is_not_used(rig: Rig, parent: Path) -> None:
    make_kept(parent, KEPT, 1, used=1)
    tool = rig.root / "bin" / "cp"
    tool.unlink()
    tool.write_text('#!/bin/bash\nmkdir "${@: -1}"; echo half > "${@: -1}/code"; exit 1\n')
    tool.chmod(0o755)

    with running(rig, STAYS) as first:
        copied = open_cache(rig)
        terminate(first)

    assert os.listdir(copied) == []


def test_the_images_used_longest_ago_are_removed(rig: Rig, parent: Path) -> None:
    old = [make_kept(parent, f"{number:016x}", 1, used=number) for number in range(1, 6)]
    other = make_kept(parent, "notes", 1, used=0)

    assert open_cache(rig) == str(parent / KEPT)

    assert [folder.exists() for folder in old] == [False, False, True, True, True]
    assert other.exists()  # not ours


def test_too_much_code_is_removed_also_that_of_this_image(rig: Rig, parent: Path) -> None:
    old = make_kept(parent, f"{1:016x}", 3 << 10, used=1)
    own = make_kept(parent, KEPT, 3 << 10, used=2)

    assert open_limited(rig, mib=4) == str(own)
    assert (old.exists(), (own / "code").exists()) == (False, True)

    (own / "more").write_bytes(os.urandom(3 << 20))
    assert open_limited(rig, mib=4) == str(own)
    assert os.listdir(own) == []


def open_limited(rig: Rig, mib: int) -> str:
    """Open the cache with another limit, which the library declares readonly."""
    text = (CHECKOUT / "slurm" / "lib" / "node" / "compile_cache.sh").read_text()
    assert "COMPILE_CACHE_MAX_MIB=4096" in text
    changed = rig.root / "compile_cache.sh"
    changed.write_text(text.replace("COMPILE_CACHE_MAX_MIB=4096", f"COMPILE_CACHE_MAX_MIB={mib}"))
    done = rig.source("common/log", f'source "{changed}"; {OPEN}', DIGEST=DIGEST)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_image_in_use_is_not_removed(rig: Rig, parent: Path) -> None:
    with running(rig, STAYS) as first:
        os.utime(parent / KEPT, (1, 1))
        for number in range(1, 6):
            open_cache(rig, digest=f"{number:064x}"[::-1])
        assert (parent / KEPT).exists()
        terminate(first)


@other_account.NEEDS_ROOT
@pytest.mark.parametrize(
    "made",
    [
        "mkdir -m 755 {name}; mkdir -m 777 {name}/{kept}; echo 1/0 > {name}/{kept}/code",
        "mkdir -m 777 {name}",
        "ln -s $PWD {name}",
        ": > {name}",
        "mkfifo {name}",
    ],
    ids=["folder with code", "open folder", "link", "file", "FIFO"],
)
def test_what_another_account_made_is_not_used(rig: Rig, parent: Path, made: str) -> None:
    local = other_account.shared_folder(parent.parent)
    other_account.attack(local, made.format(name=parent.name, kept=KEPT))
    before = other_account.contents(local)

    done = rig.node()

    assert done.returncode == 0, done.stdout
    assert "is no folder that only this account may write" in done.stdout
    assert MOUNTED not in mounted(rig.docker_run())
    assert other_account.contents(local) == before


@pytest.mark.parametrize("bits", [0o770, 0o707])
def test_a_folder_that_others_may_write_is_not_used(rig: Rig, parent: Path, bits: int) -> None:
    parent.mkdir()
    parent.chmod(bits)

    done = rig.node()

    assert "compiled code is not kept" in done.stdout
    assert MOUNTED not in mounted(rig.docker_run())
