"""Versions and hashes of all that a build downloads."""
