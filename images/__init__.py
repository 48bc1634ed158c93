"""Builds and publishes the images: catalog, build, push, provenance (host Python)."""
