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

    assert {flag.replace("-", "_") for flag in flags("build")} == chosen | set(site_settings.FLAGS)


@pytest.mark.parametrize(
    ("task", "told"),
    [("export", f"by comma: {', '.join(FORMATS)}"), ("testbed.up", f"compute nodes, 1 to {MAX_NODES}")],
)
def test_what_help_says_of_formats_and_nodes_is_so(task: str, told: str) -> None:
    argv = [sys.executable, "-m", "invoke", "--help", task]
    shown = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout

    assert told in " ".join(shown.split())


@pytest.mark.parametrize(
    ("call", "unused"),
    [
        (
            "docs_tables.filled(images_catalog.Catalog.read())",
            {"docker", "requests", "images.builds.build", "slurm.testbed"},
        ),
        ("slurm_explain.explain", {"docker", "jinja2", "images.catalog.catalog", "slurm.testbed"}),
        (
            "images_request.Order.of",
            {
                "docker",
                "jinja2",
                "rich",
                "spdx_tools",
                "images.export.export",
                "images.registry.push",
                "slurm.jobs.check",
            },
        ),
    ],
)
def test_a_task_loads_what_it_uses(call: str, unused: set[str]) -> None:
    """A module that was found and not run has no name of its own yet."""
    script = f"import sys; from tasks import *; {call}; print(*(name for name, each in sys.modules.items() if LAZY))"
    script = script.replace("LAZY", "type(each).__name__ != '_LazyModule'")
    loaded = subprocess.run([sys.executable, "-c", script], cwd=CHECKOUT, capture_output=True, text=True, check=True)

    assert not unused & set(loaded.stdout.split())


def test_what_a_module_imports_is_there_at_once_since_threads_may_use_it_first() -> None:
    script = "import sys, tasks; tasks.build_all.build_all; print(type(sys.modules['images.context.context']).__name__)"
    loaded = subprocess.run([sys.executable, "-c", script], cwd=CHECKOUT, capture_output=True, text=True, check=True)

    assert loaded.stdout.strip() == "module"
