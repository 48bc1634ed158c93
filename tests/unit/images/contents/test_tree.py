"""Two trees: what is the same, what is not, and how it is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from images.contents.tree import CHARACTERS, FILE, FOLDER, LINK, Entry, differences
from tests.support.images.archives import held

ONE = Entry(FILE, 0o644, (0, 0), held("one"), 3)


def test_what_is_not_the_same_is_told_by_path_with_both_sides() -> None:
    other = replace(ONE, mode=0o600, owner=(0, 5))

    told = differences({"same": ONE, "x": ONE, "only": ONE}, {"same": ONE, "x": other})

    digest = held("one")[:12]
    assert told == [
        f"only: -rw-r--r-- 0:0 3 bytes {digest} | missing",
        f"x: -rw-r--r-- 0:0 3 bytes {digest} | -rw------- 0:5 3 bytes {digest}",
    ]


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (Entry(FOLDER, 0o1777, (0, 0)), "drwxrwxrwt 0:0"),
        (Entry(LINK, 0o777, None, "etc/file"), "lrwxrwxrwx etc/file"),
        (Entry(CHARACTERS, 0o640, (7, 8), "1,3"), "crw-r----- 7:8 1,3"),
        (Entry(FILE, 0o644, None, size=3, place="/somewhere"), "-rw-r--r-- 3 bytes"),
    ],
)
def test_each_kind_is_told_as_ls_does(entry: Entry, told: str) -> None:
    assert str(entry) == told


@pytest.mark.parametrize(
    "other",
    [
        replace(ONE, mode=0o600),
        replace(ONE, owner=(0, 1)),
        replace(ONE, holds=held("two")),
        replace(ONE, size=4),
        Entry(FOLDER, 0o644, (0, 0)),
        Entry(LINK, 0o644, (0, 0), held("one"), 3),
    ],
)
def test_each_part_of_an_entry_counts(other: Entry) -> None:
    assert ONE.same(replace(ONE))
    assert not ONE.same(other)
    assert not other.same(ONE)


def test_a_file_that_lies_here_is_read_where_nothing_else_tells(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("a", "b", "c")]
    for place, text in zip(places, ("one", "one", "two")):
        place.write_text(text)
    a, b, c = (replace(ONE, holds="", place=str(place)) for place in places)

    assert a.same(b)
    assert a.same(ONE)
    assert ONE.same(a)
    assert not a.same(c)
    assert not ONE.same(c)
    assert replace(a, place="/not/read").same(replace(a, place="/not/read"))
    assert not a.same(replace(c, size=4, place="/not/read"))


def test_an_owner_that_nobody_knows_is_not_compared() -> None:
    assert ONE.same(replace(ONE, owner=None))
    assert replace(ONE, owner=None).same(ONE)
