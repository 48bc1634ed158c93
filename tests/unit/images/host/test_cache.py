"""What is made of the checkout's files is made again when any of them, or what makes it, is another."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from images.catalog.catalog import Catalog
from images.context import draft
from images.errors import Incompatible
from images.host import cache, digests


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose files count as settled though they were written just now, and a library on the path."""
    for name in (
        "images/a.py",
        "images/pins/locks/b.txt",
        "images/c.toml",
        "dockerfiles/d.j2",
        "dockerfiles/rendered/e",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one\n")
    (tmp_path / "lib/library").mkdir(parents=True)
    (tmp_path / "lib/library/__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    monkeypatch.setattr(cache, "LIBRARIES", ("library", "not_installed"))
    monkeypatch.setattr(cache, "ROOT", tmp_path)
    monkeypatch.setattr(cache, "CACHE", tmp_path / ".build/memory")
    monkeypatch.setattr(cache, "SETTLED_NS", -(10**12))
    monkeypatch.setattr(digests, "RACY_NS", -(10**12))
    return tmp_path


@pytest.fixture
def made(checkout: Path) -> Callable[..., bool]:
    """Whether a new process makes it anew."""

    def made_anew(of: object = "x", name: str = "name", meanwhile: Callable[[], object] = lambda: None) -> bool:
        cache._state.cache_clear()
        digests.at.cache_clear()
        calls = []

        def make() -> dict[str, list[int]]:
            calls.append(of)
            meanwhile()
            return {"made": [1]}

        assert cache.recalled(name, of, make) == {"made": [1]}
        return bool(calls)

    return made_anew


def test_it_is_made_once_while_nothing_changes(made: Callable[..., bool]) -> None:
    assert [made(), made(), made()] == [True, False, False]


@pytest.mark.parametrize("name", ["images/a.py", "images/pins/locks/b.txt", "images/c.toml", "dockerfiles/d.j2"])
def test_an_edit_of_any_file_is_seen_though_size_and_time_are_as_before(
    name: str, checkout: Path, made: Callable[..., bool]
) -> None:
    made()
    state = (checkout / name).stat()
    (checkout / name).write_text("two\n")
    os.utime(checkout / name, ns=(state.st_atime_ns, state.st_mtime_ns))

    assert [made(), made()] == [True, False]


@pytest.mark.parametrize(
    "change",
    [
        lambda top: (top / "images/new.py").touch(),
        lambda top: (top / "images/a.py").unlink(),
        lambda top: (top / "images/a.py").rename(top / "images/z.py"),
        lambda top: (top / "lib/library/__init__.py").write_text("version = 2\n"),
        lambda top: (top / "lib/library/more.py").touch(),
    ],
    ids=["a file more", "a file less", "another name", "another library", "a library's file more"],
)
def test_what_comes_goes_or_is_installed_anew_is_seen(
    change: Callable[[Path], object], checkout: Path, made: Callable[..., bool]
) -> None:
    made()
    change(checkout)

    assert [made(), made()] == [True, False]


def test_what_is_made_of_them_is_no_reason(checkout: Path, made: Callable[..., bool]) -> None:
    made()
    (checkout / "dockerfiles/rendered/e").write_text("two\n")

    assert not made()


def test_another_question_is_another_and_of_a_name_the_last_is_kept(made: Callable[..., bool]) -> None:
    assert [made("x"), made("y"), made("y"), made("x", "other"), made("x")] == [True, True, False, True, True]


def test_what_was_edited_a_moment_ago_is_not_kept_since_this_process_may_have_loaded_it_before(
    made: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "SETTLED_NS", 60_000_000_000)

    assert [made(), made()] == [True, True]


def test_what_is_edited_while_it_is_made_is_not_kept(checkout: Path, made: Callable[..., bool]) -> None:
    made(meanwhile=lambda: (checkout / "images/c.toml").write_text("two\n"))
    (checkout / "images/c.toml").write_text("one\n")

    assert made()


def test_what_is_cut_off_or_cannot_be_written_is_made_anew(checkout: Path, made: Callable[..., bool]) -> None:
    made()
    (checkout / ".build/memory/name.json").write_text('{"key": ')
    assert [made(), made()] == [True, False]

    (checkout / ".build").rename(checkout / "elsewhere")
    (checkout / ".build").touch()
    assert [made(), made()] == [True, True]


def test_the_catalog_is_the_one_that_is_read(checkout: Path) -> None:
    read = Catalog.read()

    for known in (Catalog.here(), Catalog.here()):
        assert (known.variants, known.defaults) == (read.variants, read.defaults)
    assert (checkout / ".build/memory/catalog.json").is_file()


def test_a_cells_texts_are_those_that_are_made(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for spec in list(Catalog.read().variants.values())[::10]:
        first = draft.of(spec)
        with monkeypatch.context() as patch:
            patch.setattr(draft, "_made", lambda *_: pytest.fail("it is known"))
            assert draft.of(spec) == first
        assert first == draft.Draft(**draft._made(spec, None))


def test_a_cell_that_cannot_work_is_refused_each_time(checkout: Path) -> None:
    cpu = Catalog.read().find("cpu")
    draft.refuse_impossible(cpu)
    for _ in range(2):
        with pytest.raises(Incompatible, match="cpu cannot work"):
            draft.refuse_impossible(replace(cpu, python="3.9"))
