"""Arguments of a task behind `--`, for sbatch and Hydra."""

from __future__ import annotations

import sys


def after_dashes() -> list[str]:
    """The arguments behind `--`, each as it was typed: Invoke joins them with blanks."""
    return sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
