"""The flags of the image tasks are those that the docs name."""

from __future__ import annotations

import pytest

from images import vocabulary
from tasks import namespace


def flags(name: str) -> set[str]:
    task = namespace[name]
    return {flag for argument in task.get_arguments() for flag in argument.names if len(flag) > 1}


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("images", {"space"}),
        ("site", {"site"}),
        ("bundle", {"variant", "output", "base", "site"}),
        ("render", {"platform", "variant", "stdout"}),
        ("push", {"platform", "registry", "variant", "rollout", "image", "tag", "force", "attest", "key"}),
        ("export", {"format", "platform", "variant", "rollout", "image", "base", "wheelhouse", "output"}),
        ("prune", {"yes"}),
        ("sbom", {"image", "output"}),
        ("verify", {"image", "key"}),
        ("lock", {"variant"}),
        ("diff", {"output"}),
        ("pins", {"check", "update"}),
    ],
)
def test_a_task_takes_what_the_docs_say(task: str, expected: set[str]) -> None:
    assert flags(task) == expected


def test_build_takes_everything_that_a_site_may_have_of_its_own() -> None:
    chosen = {"platform", "variant", "rollout", "tag", "base", "reproducible", "site", "bundle"}
    chosen |= {"all", "jobs", "anyway", "progress", "verl", "editable"}

    assert {flag.replace("-", "_") for flag in flags("build")} == chosen | set(vocabulary.FLAGS)
