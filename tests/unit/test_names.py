"""Modules have the names of the field: tests/data/module_words.txt lists the words that they may be made of.

A word that is not in the list is added to it with the module, where a reader of Slurm's, Docker's, Ray's or verl's
documentation knows it.
"""

from __future__ import annotations

import subprocess
from pathlib import PurePath

import pytest

from tests.support.paths import CHECKOUT, DATA

WORDS = set((DATA / "module_words.txt").read_text().split())
PRODUCT = ["bench", "bootstrap", "dockerfiles", "entrypoints", "images", "slurm"]


def modules() -> list[str]:
    argv = ["git", "-C", str(CHECKOUT), "ls-files", "--cached", "--others", "--exclude-standard", *PRODUCT]
    files = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    return [file for file in files if file.endswith((".py", ".sh")) and (CHECKOUT / file).exists()]


def unknown(file: str) -> list[str]:
    return [word for word in PurePath(file).stem.split("_") if word and word not in WORDS]


def test_every_module_is_named_by_known_words() -> None:
    assert len(modules()) > 200
    assert {file: words for file in modules() if (words := unknown(file))} == {}


def test_every_word_of_the_list_names_a_module() -> None:
    used = {word for file in modules() for word in PurePath(file).stem.split("_")}

    assert sorted(WORDS - used) == []


@pytest.mark.parametrize("file", ["images/host/alone.py", "slurm/lib/common/say.sh", "entrypoints/verl_node/strain.py"])
def test_a_riddle_is_refused(file: str) -> None:
    assert unknown(file)
