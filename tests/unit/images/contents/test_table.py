"""The table of `invoke image.list`, without an engine."""

from __future__ import annotations

import pytest

from images.catalog.catalog import Catalog
from images.contents import table as contents_table
from images.errors import EngineMissing


def no_engine() -> None:
    raise EngineMissing("none")


def test_the_table_has_every_variant_with_base_pins_and_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents_table, "daemon", no_engine)
    catalog = Catalog.read()

    table = contents_table.table(catalog)

    for name, variant in catalog.variants.items():
        assert f"\n{name}" in f"\n{table}"
        assert variant.base in table
        assert f"verl {variant.installs['verl']}" in table
    assert table.count("default of --platform") == 3
    assert "builds vllm 0.6.3 at fd47e57f4b0d" in table
    assert "no engine answers" in table


def test_a_layer_is_named_by_the_packages_it_installs() -> None:
    step = "RUN /bin/sh -c export A=1  && apt-get update  && apt-get install --yes   tini # buildkit"

    assert contents_table._short_step(step) == "apt-get install --yes tini # buildkit"
    assert (
        contents_table._short_step("COPY toolkit/ /opt/verljob/ # buildkit") == "COPY toolkit/ /opt/verljob/ # buildkit"
    )
