"""This machine: commands, locks, digests, paths."""
