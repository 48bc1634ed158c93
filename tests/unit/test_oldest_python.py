"""The unit tests of verl_node with Python 3.9, the oldest supported version."""

from __future__ import annotations

import subprocess

from tests.support.node import oldest_python
from tests.support.paths import CHECKOUT

RECIPES = "tests/unit/verl_node/training/test_recipes.py"
UNIT = [
    "tests/unit/verl_node",  # the other tests need 3.11
    # Composes the recipes once for each image, for 40 s of processor time; another test does it once for each release.
    f"--deselect={RECIPES}::test_gpu_recipes_compose_for_every_image_that_the_docs_say_runs_them",
]


def test_the_unit_tests_of_verl_node_pass() -> None:
    cache = f"cache_dir={CHECKOUT / '.pytest_cache'}"  # files of verl are downloaded once
    done = subprocess.run(
        [oldest_python.ensure(), "-m", "pytest", "--quiet", "--numprocesses=2", "--dist=loadfile", "-o", cache, *UNIT],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
