"""Generated tables of the pages agree with the catalog."""

from __future__ import annotations

import re
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
def test_pages_are_up_to_date_with_the_catalog(page: str) -> None:
    assert docs_tables.filled(CATALOG)[page] == (CHECKOUT / page).read_text(encoding="utf-8"), "run `invoke render`"


def test_every_variant_is_listed_with_its_tag() -> None:
    text = docs_tables.tags(CATALOG)

    for variant in CATALOG.variants.values():
        assert f"`{CATALOG.names(variant)[0]}`" in text
        assert f"| `{variant.name}` |" in text


def test_commands_name_the_image_that_their_build_makes() -> None:
    text = docs_tables.commands(CATALOG)

    for platform, variant in CATALOG.defaults.items():
        image = CATALOG.names(CATALOG.variants[variant])[0]
        assert text.index(f"build --platform {platform} ") < text.index(
            f"VERLJOB_IMAGE={docs_tables.REGISTRY}/{image} "
        )


def test_release_without_a_key_table_is_marked() -> None:
    assert docs_tables.recipes(CATALOG.variants["rocm6.2"]) == docs_tables.recipes(CATALOG.variants["cu130"]) == "yes"
    older = replace(CATALOG.variants["cu130"], installs={"verl": "0.3.0"})
    assert docs_tables.recipes(older) == "no: no key table"


def test_recipes_say_which_override_another_engine_needs_and_why_they_do_not_run() -> None:
    assert docs_tables.recipes(CATALOG.variants["cu130-sgl"]) == "yes, with `actor_rollout_ref.rollout.name=sglang`"
    assert docs_tables.recipes(CATALOG.variants["cpu"]) == "no: `demo_cpu` is the one for CPUs"
    refused = replace(CATALOG.variants["cu130"], python="3.13")
    assert docs_tables.recipes(refused).startswith("no: verl 0.9.1 needs Python")


def test_a_pipe_of_a_source_makes_no_column() -> None:
    lines = docs_tables.bases(CATALOG).splitlines()

    assert any(r"`list \| None`" in line for line in lines)
    assert {len(re.split(r"(?<!\\)\|", line)) for line in lines} == {6}


def test_bases_show_what_pins_them() -> None:
    unpinned = replace(CATALOG.variants["cu130"], base_digest="")

    assert docs_tables.pinned_by(CATALOG.variants["cu130"]) == "digest"
    assert docs_tables.pinned_by(unpinned) == "its tag: may move"
    assert docs_tables.pinned_by(replace(unpinned, base="docker.io/verlai/verl:vllm012.latest")) == "a tag that moves"


def test_every_variant_has_a_row_with_its_state() -> None:
    rows = docs_tables.states(CATALOG).splitlines()[2:]

    assert [row.split(" | ")[1] for row in rows] == [each.state.kind for each in CATALOG.variants.values()]
    assert all(each.state.link in row for row, each in zip(rows, CATALOG.variants.values()))


def test_page_without_markers_fails(tmp_path: Path) -> None:
    for page in docs_tables.PAGES:
        (tmp_path / page).parent.mkdir(exist_ok=True)
        shutil.copy(CHECKOUT / page, tmp_path / page)
    docs_tables.write(CATALOG, tmp_path)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    (tmp_path / "README.md").write_text(text.replace("<!-- end of commands -->", ""), encoding="utf-8")

    with pytest.raises(CatalogError, match=r"README.md: no place for a generated part: add a line <!-- commands: "):
        docs_tables.write(CATALOG, tmp_path)
