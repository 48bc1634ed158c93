"""The flags of the image tasks are those that the docs name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from images.builds import site_settings
from images.export.export import FORMATS
from slurm.testbed import MAX_NODES
from tasks import OLD_NAMES, namespace
from tests.support.paths import CHECKOUT


def flags(name: str) -> set[str]:
    task = namespace[name]
    return {flag for argument in task.get_arguments() for flag in argument.names if len(flag) > 1}


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("image.list", {"space"}),
        ("image.site", {"site"}),
        ("image.bundle", {"variant", "output", "base", "site"}),
        ("render", {"platform", "variant", "stdout"}),
        ("push", {"platform", "registry", "variant", "rollout", "image", "tag", "force", "attest", "key"}),
        ("image.export", {"format", "platform", "variant", "rollout", "image", "output"}),
        ("image.prune", {"yes"}),
        ("image.sbom", {"image", "output"}),
        ("image.verify", {"image", "key"}),
        ("image.lock", {"variant"}),
        ("image.diff", {"output"}),
        ("image.pins", {"check", "update"}),
    ],
)
def test_a_task_takes_what_the_docs_say(task: str, expected: set[str]) -> None:
    assert flags(task) == expected


def test_build_takes_everything_that_a_site_may_have_of_its_own() -> None:
    chosen = {"platform", "variant", "rollout", "tag", "base", "reproducible", "site", "bundle"}
    chosen |= {"all", "jobs", "force", "anyway", "dry_run", "progress", "verl", "editable"}

    assert {flag.replace("-", "_") for flag in flags("build")} == chosen | set(site_settings.FLAGS)


@pytest.mark.parametrize(
    ("task", "told"),
    [
        ("image.export", f"comma-separated: {', '.join(FORMATS)}"),
        ("testbed.up", f"compute nodes, 1 to {MAX_NODES}"),
    ],
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


@pytest.mark.parametrize(("old", "new"), OLD_NAMES.items())
def test_an_old_name_runs_the_task_and_prints_the_new_name(old: str, new: str) -> None:
    assert flags(old) == flags(new)
    assert namespace[old].__doc__ == f"The old name of {new}."


def test_what_is_said_of_an_old_name_goes_to_standard_error() -> None:
    argv = [sys.executable, "-m", "invoke", "site"]
    done = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=True)

    assert done.stderr == "`invoke site` is called `invoke image.site` now.\n"
    assert "image.site" not in done.stdout


def test_an_error_of_a_task_is_one_message_and_1() -> None:
    argv = [sys.executable, "-m", "invoke", "render", "--platform", "none"]
    done = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.startswith("UnknownVariant: ")
