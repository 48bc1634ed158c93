"""Data and model of a node."""
