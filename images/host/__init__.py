"""Commands, inter-process locks, digests of files, paths."""
