"""What pages say of the catalog is what the catalog says."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from images.catalog import docs_tables
from images.catalog.catalog import Catalog
from images.errors import CatalogError
from tests.support.paths import CHECKOUT

CATALOG = Catalog.read()


@pytest.mark.parametrize("page", docs_tables.PAGES)
def test_a_page_says_what_the_catalog_says(page: str) -> None:
    assert docs_tables.filled(CATALOG)[page] == (CHECKOUT / page).read_text(encoding="utf-8"), "run `invoke render`"


def test_every_image_stands_with_its_tag_and_its_cell() -> None:
    text = docs_tables.tags(CATALOG)

    for variant in CATALOG.variants.values():
        assert f"`{CATALOG.names(variant)[0]}`" in text
        assert f"| `{variant.name}` |" in text


def test_the_commands_name_the_image_that_the_build_before_them_makes() -> None:
    text = docs_tables.commands(CATALOG)

    for platform, variant in CATALOG.defaults.items():
        image = CATALOG.names(CATALOG.variants[variant])[0]
        assert text.index(f"build --platform {platform} ") < text.index(
            f"VERLJOB_IMAGE={docs_tables.REGISTRY}/{image} "
        )


def test_a_release_without_a_key_table_is_told() -> None:
    assert docs_tables.recipes(CATALOG.variants["rocm6.2"]) == docs_tables.recipes(CATALOG.variants["cu130"]) == "yes"
    older = replace(CATALOG.variants["cu130"], installs={"verl": "0.3.0"})
    assert docs_tables.recipes(older) == "no key table"


def test_a_page_without_a_place_for_its_table_stops(tmp_path: Path) -> None:
    for page in docs_tables.PAGES:
        (tmp_path / page).parent.mkdir(exist_ok=True)
        shutil.copy(CHECKOUT / page, tmp_path / page)
    docs_tables.write(CATALOG, tmp_path)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    (tmp_path / "README.md").write_text(text.replace("<!-- end of commands -->", ""), encoding="utf-8")

    with pytest.raises(CatalogError, match="has no place for its commands"):
        docs_tables.write(CATALOG, tmp_path)
