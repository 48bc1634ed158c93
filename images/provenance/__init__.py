"""SBOM, SLSA provenance and signatures of an image."""
