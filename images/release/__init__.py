"""Releases of the toolkit: versions of it whose images are published together."""
