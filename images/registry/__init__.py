"""Registries, by the distribution API."""
