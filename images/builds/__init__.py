"""One build, many builds, bundles; disk space and the site's settings."""
