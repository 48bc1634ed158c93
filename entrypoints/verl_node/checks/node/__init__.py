"""Checks of one node, grouped by subject."""
