"""The flags of the image tasks are those that the docs name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from images.builds import site_settings
from images.export.export import FORMATS
from slurm.testbed import MAX_NODES
from tasks import namespace
from tests.support.paths import CHECKOUT


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
        ("export", {"format", "platform", "variant", "rollout", "image", "output"}),
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

    assert {flag.replace("-", "_") for flag in flags("build")} == chosen | set(site_settings.FLAGS)


@pytest.mark.parametrize(
    ("task", "told"),
    [("export", f"by comma: {', '.join(FORMATS)}"), ("testbed.up", f"compute nodes, 1 to {MAX_NODES}")],
)
def test_what_help_says_of_formats_and_nodes_is_so(task: str, told: str) -> None:
    argv = [sys.executable, "-m", "invoke", "--help", task]
    shown = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout

    assert told in " ".join(shown.split())


def test_a_suite_that_is_none_ends_the_tests_and_those_that_there_are_are_named() -> None:
    argv = [sys.executable, "-m", "invoke", "test", "--only", "lint,imgae"]
    done = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "There is no suite imgae; there are lint, unit, shell, image, cluster." in done.stderr
