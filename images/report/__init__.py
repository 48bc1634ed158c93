"""Build log, progress, report, provenance record."""
