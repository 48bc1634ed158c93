"""What a node reads from its environment and from Slurm."""
