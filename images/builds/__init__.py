"""One build, `--all`, bundles, disk space, prune, site settings."""
