"""The matrix of faults is whole, and docs/faults.md is what it says."""

from __future__ import annotations

import re

import pytest

from slurm.errors import SlurmError
from tests.faults.chaos import chosen
from tests.faults.kinds import KINDS
from tests.faults.table import PAGE, written

FLOW = PAGE.parent / "flow.md"


def test_the_page_has_the_matrix_as_it_is() -> None:
    page = PAGE.read_text()

    assert page == written(page), "python -m tests.faults.table"


def test_there_are_twenty_kinds_for_every_runtime_and_half_of_them_are_quick() -> None:
    for runtime in ("docker", "podman", "bare"):
        assert len(chosen("", runtime)) >= 20
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert len(KINDS) / 3 <= sum(kind.quick for kind in KINDS) <= len(KINDS) / 2


def test_every_code_of_the_matrix_is_a_documented_one() -> None:
    codes = set(map(int, re.findall(r"\b(\d\d) \w", FLOW.read_text().partition("## Exit codes")[2])))

    assert {kind.code for kind in KINDS} - {137, 143} <= codes


def test_an_unknown_kind_is_refused_with_the_list() -> None:
    with pytest.raises(SlurmError, match="gcs-killed"):
        chosen("gcs-kiled", "docker")
