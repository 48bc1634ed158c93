"""Docker and buildah on this machine, and the base images that they hold."""
