"""The generated parts of docs/: checks, rules, faults and profiles, each between its two markers."""

from __future__ import annotations

from images.catalog import docs_tables


def fill(page: str, name: str, text: str) -> str:
    """Return the page with ``text`` between the markers of ``name``; raise ValueError if it does not have them."""
    return docs_tables.fill(page, f"<!-- {name}: begin -->", f"<!-- {name}: end -->", text)
