"""Settings of a node from its environment and from Slurm."""
