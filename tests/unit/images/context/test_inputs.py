"""An image is unchanged only if all its inputs are: every input is mutated once."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from images.catalog.catalog import Catalog
from images.context import context, inputs, verl_source
from images.engine.client import Engine
from images.engine.daemon import Inspected
from images.host import digests
from images.host.paths import ENTRYPOINTS
from images.pins import locks

CPU = Catalog.read().variants["cpu"]
ENGINE = Engine("/usr/bin/docker", "20.10.24", buildx=False)
BASE_ID = "sha256:" + "1" * 64
LABELS = {"verljob.base": "base:1"}


class FakeDaemon:
    """A daemon's images by ID."""

    def __init__(self) -> None:
        self.images, self.number = dict[str, Inspected](), "20.10.24"

    def version(self) -> dict[str, str]:
        return {"Version": self.number}

    def find(self, image_id: str) -> Inspected | None:
        return self.images.get(image_id)


@pytest.fixture(autouse=True)
def fake_daemon(monkeypatch: pytest.MonkeyPatch) -> FakeDaemon:
    fake = FakeDaemon()
    monkeypatch.setattr(inputs, "find_image", fake.find)
    monkeypatch.setattr(inputs, "daemon_version", fake.version)
    return fake


@pytest.fixture
def staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The real context of verl.cpu, with a wheel of two files."""
    monkeypatch.setattr(context, "STAGED", tmp_path / "staged")
    wheel = tmp_path / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("torch/__init__.py", "a = 1\n")
        archive.writestr("torch-2.13.0.dist-info/METADATA", "Name: torch\n")
    return context.stage(CPU, "base:1", wheelhouse(wheel)).folder


def wheelhouse(*wheels: Path) -> dict[str, Path]:
    return {f"wheelhouse/{wheel.name}": wheel for wheel in wheels}


def listed(folder: Path) -> dict[str, None]:
    """Every path in a folder, as an entry that has to be read."""
    return {str(path.relative_to(folder)): None for path in folder.rglob("*")}


def key_of(folder: Path, base_id: str = BASE_ID, engine: Engine = ENGINE) -> str:
    return inputs.key(inputs.collect(folder, base_id, inputs.docker_versions(engine), LABELS, listed(folder)))


def test_the_key_does_not_depend_on_file_times(staged: Path) -> None:
    before = key_of(staged)
    for path in staged.rglob("*"):
        os.utime(path, (1, 1))

    assert key_of(staged) == before


def test_a_changed_byte_of_any_file_changes_the_key(staged: Path) -> None:
    before, files = key_of(staged), [path for path in staged.rglob("*") if path.is_file() and path.suffix != ".whl"]

    missed = []
    for path in files:
        content, state = path.read_bytes(), path.stat()
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:] if content else b"x")
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))  # same size and time
        missed += [path] if key_of(staged) == before else []
        path.write_bytes(content)

    assert len(files) > 50
    assert missed == []
    assert key_of(staged) == before


def test_a_changed_mode_of_any_file_or_folder_changes_the_key(staged: Path) -> None:
    before, paths = key_of(staged), list(staged.rglob("*"))

    missed = []
    for path in paths:
        mode = path.stat().st_mode
        path.chmod(mode ^ 0o001)
        missed += [path] if key_of(staged) == before else []
        path.chmod(mode)

    assert missed == []
    assert key_of(staged) == before


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout's entrypoints, whose digests are cached although they were just written."""
    monkeypatch.setattr(context, "STAGED", tmp_path / "staged")
    shutil.copytree(ENTRYPOINTS, tmp_path / "entrypoints")
    monkeypatch.setattr(context, "ENTRYPOINTS", tmp_path / "entrypoints")
    monkeypatch.setattr(digests, "RACY_NS", -(10**12))
    return tmp_path / "entrypoints"


def key_with_caches(verl: verl_source.Source | None = None) -> str:
    """The key, computed as by a new process with the caches of earlier ones."""
    digests.open_cache.cache_clear()
    staged = context.stage(CPU, "base:1", {}, verl=verl)
    cache = context.staged_digests(staged.folder)
    read = inputs.collect(staged.folder, BASE_ID, "docker", LABELS, listed(staged.folder))
    for entries in (staged.entries, listed(staged.folder)):
        found = inputs.collect(staged.folder, BASE_ID, "docker", LABELS, entries, cache=cache)
        assert found == read, "as if all files were read"
    key = inputs.key(read)
    cache.save()
    return key


def test_an_edit_of_the_toolkit_that_restores_size_and_time_changes_the_key(toolkit: Path) -> None:
    before = key_with_caches()
    files = sorted(path for path in toolkit.rglob("*.*") if path.is_file() and path.suffix != ".pyc")[::10]

    missed = []
    for path in files:
        content, state = path.read_bytes(), path.stat()
        for edited in (bytes([content[0] ^ 1]) + content[1:], content):
            path.write_bytes(edited)
            os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
            missed += [path] if (key_with_caches() == before) != (edited == content) else []

    assert len(files) > 10
    assert missed == []


def same_size_and_time(verl: Path) -> None:
    state = (verl / "__init__.py").stat()
    (verl / "__init__.py").write_text("x = 2\n")
    os.utime(verl / "__init__.py", ns=(state.st_atime_ns, state.st_mtime_ns))


def chmod_only(verl: Path) -> None:
    (verl / "__init__.py").chmod(0o755)


def a_link_is_retargeted(verl: Path) -> None:
    (verl / "link").unlink()
    (verl / "link").symlink_to("version")


def renamed_into_its_place(verl: Path) -> None:
    state = (verl / "__init__.py").stat()
    (verl / "new").write_text("x = 2\n")
    os.utime(verl / "new", ns=(state.st_atime_ns, state.st_mtime_ns))
    (verl / "new").rename(verl / "__init__.py")


def a_module_comes(verl: Path) -> None:
    (verl / "new.py").touch()


def a_module_goes(verl: Path) -> None:
    (verl / "gone.py").unlink()


def the_clock_goes_back(verl: Path) -> None:
    (verl / "__init__.py").write_text("x = 2\n")
    os.utime(verl / "__init__.py", (1, 1))


@pytest.mark.parametrize(
    "mutate",
    [
        same_size_and_time,
        chmod_only,
        a_link_is_retargeted,
        renamed_into_its_place,
        a_module_comes,
        a_module_goes,
        the_clock_goes_back,
    ],
)
def test_a_change_in_a_checkout_of_verl_changes_the_key(
    mutate: Callable[[Path], None], toolkit: Path, tmp_path: Path
) -> None:
    verl = tmp_path / "checkout/verl"
    (verl / "version").mkdir(parents=True)
    (verl / "version/version").write_text("0.9.1\n")
    (verl / "__init__.py").write_text("x = 1\n")
    (verl / "gone.py").touch()
    (verl / "link").symlink_to("__init__.py")
    found = verl_source.find(str(verl.parent), lambda _: {})
    before = key_with_caches(found)
    assert key_with_caches(found) == before

    mutate(verl)

    assert key_with_caches(found) != before


def test_no_file_of_an_unchanged_checkout_is_read(toolkit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, read = key_with_caches(), list[str]()
    content = digests.DigestCache._read
    monkeypatch.setattr(digests.DigestCache, "_read", lambda self, path: read.append(path) or content(self, path))  # type: ignore[func-returns-value]

    assert key_with_caches() == before
    assert read == []


def a_file_goes(folder: Path) -> None:
    (folder / "steps/guard.py").unlink()


def a_file_comes(folder: Path) -> None:
    (folder / "toolkit/new").touch()


def an_empty_folder_comes(folder: Path) -> None:
    (folder / "wheelhouse/new").mkdir()


def a_file_becomes_a_link(folder: Path) -> None:
    (folder / "steps/guard.py").rename(folder / "guard.py")
    (folder / "steps/guard.py").symlink_to("../guard.py")


def a_file_moves(folder: Path) -> None:
    (folder / "steps/guard.py").rename(folder / "steps/moved.py")


def the_wheel_has_another_byte(folder: Path) -> None:
    wheel = next(folder.glob("wheelhouse/*.whl"))
    wheel.unlink()  # a hard link
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("torch/__init__.py", "a = 2\n")
        archive.writestr("torch-2.13.0.dist-info/METADATA", "Name: torch\n")


def the_wheel_is_cut_off(folder: Path) -> None:
    wheel = next(folder.glob("wheelhouse/*.whl"))
    content = wheel.read_bytes()
    wheel.unlink()
    wheel.write_bytes(content[:-30])


@pytest.mark.parametrize(
    "mutate",
    [
        a_file_goes,
        a_file_comes,
        an_empty_folder_comes,
        a_file_becomes_a_link,
        a_file_moves,
        the_wheel_has_another_byte,
        the_wheel_is_cut_off,
    ],
)
def test_an_added_removed_or_replaced_entry_changes_the_key(staged: Path, mutate: Callable[[Path], None]) -> None:
    before = key_of(staged)

    mutate(staged)

    assert key_of(staged) != before


def test_another_link_target_changes_the_key(staged: Path) -> None:
    (staged / "toolkit/link").symlink_to("/one")
    before = key_of(staged)
    (staged / "toolkit/link").unlink()
    (staged / "toolkit/link").symlink_to("/two")

    assert key_of(staged) != before


def test_another_base_client_buildx_or_daemon_changes_the_key(staged: Path, fake_daemon: FakeDaemon) -> None:
    keys = [
        key_of(staged),
        key_of(staged, base_id="sha256:" + "2" * 64),
        key_of(staged, engine=replace(ENGINE, version="23.0.1")),
        key_of(staged, engine=replace(ENGINE, buildx=True)),
    ]
    fake_daemon.number = "23.0.1"
    keys.append(key_of(staged))

    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("name", list(CPU.pins))
def test_another_pin_changes_the_key(staged: Path, name: str) -> None:
    before = key_of(staged)
    wheels = wheelhouse(*staged.parent.parent.glob("*.whl"))
    bumped = replace(CPU, python="3.12") if name == "python" else replace(CPU, installs={**CPU.installs, name: "99.9"})

    assert key_of(context.stage(bumped, "base:1", wheels, locks.path(CPU)).folder) != before


def test_a_given_lock_is_an_input(staged: Path, tmp_path: Path) -> None:
    before = key_of(staged)
    (tmp_path / "lock").write_text("ray==1\n")

    staged_again = context.stage(CPU, "base:1", wheelhouse(*tmp_path.glob("*.whl")), tmp_path / "lock")

    assert key_of(staged_again.folder) != before


def test_another_label_changes_the_key(staged: Path) -> None:
    before = key_of(staged)
    labels = {**LABELS, "org.opencontainers.image.created": "2023-11-14T22:13:20+00:00"}

    assert inputs.key(inputs.collect(staged, BASE_ID, inputs.docker_versions(ENGINE), labels, listed(staged))) != before


def test_only_the_image_that_was_built_from_the_inputs_counts(tmp_path: Path, fake_daemon: FakeDaemon) -> None:
    key = "ab" * 32
    fake_daemon.images["sha256:1"] = Inspected({"Id": "sha256:1", "Config": {"Labels": {inputs.LABEL: key}}})

    assert inputs.find_built(key, tmp_path) is None, (
        "it has the label, but this checkout did not build it: a child inherits labels"
    )
    inputs.record_built(key, "sha256:1", tmp_path)
    found = inputs.find_built(key, tmp_path)
    assert found
    assert found.id == "sha256:1"
    del fake_daemon.images["sha256:1"]
    assert inputs.find_built(key, tmp_path) is None


def test_changed_inputs_are_named() -> None:
    assert inputs.changed({"a": "1", "b": "1", "new": "1"}, {"a": "1", "b": "2", "old": "1"}) == ["b", "new", "old"]
