"""Addresses and the fabric between nodes."""
