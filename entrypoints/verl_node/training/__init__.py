"""The training run: recipe, overrides, checkpoints, metrics."""
