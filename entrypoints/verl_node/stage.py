"""`python3 -m verl_node.stage --recipe FILE --data-dir DIR [OVERRIDE…]`: makes a recipe's data and model without a job.

For machines that reach the hub, where the compute nodes do not. It makes what a job of the same recipe, overrides and
variables would, and prints what `verl_node.prepare` prints.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from verl_node import prepare
from verl_node.errors import NodeError
from verl_node.settings.identity import installed
from verl_node.settings.parsing import image_overrides
from verl_node.training import recipe


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the inputs of the recipe; return 0 or the code of the error."""
    options = _parse(arguments)
    try:
        training = recipe.make_training(
            recipe.load(options.recipe),
            options.overrides,
            image_overrides=image_overrides(os.environ),
            verl_version=installed("verl"),
            nodes=options.nodes,
            gpus_per_node=options.gpus_per_node,
            run_dir=Path("/run-directory"),
            data_dir=options.data_dir,
            model=options.model or None,
        )
    except NodeError as error:
        print(f"{error.cause} {error.fix}", file=sys.stderr)  # noqa: T201
        return error.code
    argv = recipe.prepare_argv(training, options.data_dir, options.source)
    return prepare.main(argv[argv.index("--data-dir") :])


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m verl_node.stage", description=__doc__)
    parser.add_argument("--recipe", type=Path, required=True, help="a file of slurm/recipes/")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--gpus-per-node", type=int, default=8)
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of data sets and created models")
    parser.add_argument("--source", type=Path, help="folder with raw data sets, for sites without the hub")
    parser.add_argument("--model", default="", help="model instead of the recipe's")
    parser.add_argument("overrides", nargs="*")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
