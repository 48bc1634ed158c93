"""Names of modules consist of the words in tests/data/module_words.txt.

A new module may add a word that readers of the documentation of Slurm, Docker, Ray or verl know.
"""

from __future__ import annotations

import subprocess
from pathlib import PurePath

import pytest

from tests.support.paths import CHECKOUT, DATA

WORDS = set((DATA / "module_words.txt").read_text().split())
PRODUCT = ["bench", "bootstrap", "dockerfiles", "entrypoints", "images", "slurm"]


def modules() -> list[str]:
    """List the Python and shell files of the product and of bench/."""
    argv = ["git", "-C", str(CHECKOUT), "ls-files", "--cached", "--others", "--exclude-standard", *PRODUCT]
    files = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    return [file for file in files if file.endswith((".py", ".sh")) and (CHECKOUT / file).exists()]


def unknown_words(file: str) -> list[str]:
    return [word for word in PurePath(file).stem.split("_") if word and word not in WORDS]


def test_module_names_consist_of_listed_words() -> None:
    assert len(modules()) > 200
    assert {file: words for file in modules() if (words := unknown_words(file))} == {}


def test_every_listed_word_is_used_in_a_module_name() -> None:
    used = {word for file in modules() for word in PurePath(file).stem.split("_")}

    assert sorted(WORDS - used) == []


@pytest.mark.parametrize("file", ["images/host/alone.py", "slurm/lib/common/say.sh", "entrypoints/verl_node/strain.py"])
def test_unknown_word_in_module_name_fails(file: str) -> None:
    assert unknown_words(file)
