"""bootstrap/constraints.txt against pyproject.toml."""

from __future__ import annotations

import sys
from collections import defaultdict

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.paths import CHECKOUT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
REQUIREMENTS = [
    line for lines in [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()] for line in lines
]


def releases() -> dict[str, list[str]]:
    """Return the pinned releases of each package; their markers choose one for a version of Python."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in (CHECKOUT / "bootstrap" / "constraints.txt").read_text().splitlines():
        if not line.startswith("#"):
            pin = Requirement(line)
            found[canonicalize_name(pin.name)].append(str(pin.specifier).removeprefix("=="))
    return found


@pytest.mark.parametrize("line", REQUIREMENTS)
def test_every_requirement_of_the_project_is_pinned_to_a_release_that_satisfies_it(line: str) -> None:
    requirement = Requirement(line)
    pinned = releases()[canonicalize_name(requirement.name)]

    assert pinned
    assert [release for release in pinned if release not in requirement.specifier] == []
