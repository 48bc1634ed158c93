"""Data sets and models of a node."""
