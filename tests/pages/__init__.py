"""The generated parts of docs/: checks, rules and faults, each between its two markers."""

from __future__ import annotations


def fill(page: str, name: str, text: str) -> str:
    """Return the page with ``text``, which ends with a newline, between the markers of ``name``.

    Raises ValueError if the page does not have the markers.
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    before, _, rest = page.partition(begin)
    _, marker, after = rest.partition(end)
    if not marker:
        raise ValueError(f"no markers for {name}: add a line {begin.strip()} and, below it, {end.strip()}")
    return "".join([before, begin, text, end, after])
