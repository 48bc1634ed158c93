"""The generated parts of docs/ are up to date."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.pages import checks, faults, fill, profiles, troubleshooting


@pytest.mark.parametrize("module", [checks, faults, profiles, troubleshooting], ids=lambda module: module.PAGE.name)
def test_page_matches_its_source(module: ModuleType) -> None:
    page = module.PAGE.read_text()

    assert page == module.updated(page), "run `./run dev.pages`"


def test_a_page_without_markers_is_reported() -> None:
    with pytest.raises(ValueError, match="add a line <!-- rules: begin --> and, below it, <!-- rules: end -->"):
        fill("# Page\n<!-- rules: begin -->\n", "rules", "text\n")
