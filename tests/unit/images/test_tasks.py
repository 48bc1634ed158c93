"""The flags of the image tasks are those that the docs name."""

from __future__ import annotations

import pytest

from tasks import namespace


def flags(name: str) -> set[str]:
    task = namespace[name]
    return {flag for argument in task.get_arguments() for flag in argument.names if len(flag) > 1}


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("images", {"space"}),
        ("render", {"platform", "variant", "stdout"}),
        ("push", {"platform", "registry", "variant", "rollout", "attest", "key"}),
        ("sbom", {"image", "output"}),
        ("verify", {"image", "key"}),
        ("lock", {"variant"}),
        ("pins", {"check", "update"}),
    ],
)
def test_a_task_takes_what_the_docs_say(task: str, expected: set[str]) -> None:
    assert flags(task) == expected


def test_build_takes_everything_that_a_site_may_have_of_its_own() -> None:
    chosen = {"platform", "variant", "rollout", "tag", "base"}
    site = {"wheelhouse", "ca", "pip-index", "apt-mirror"}

    assert {flag.replace("_", "-") for flag in flags("build")} == chosen | site
