"""Docker client, Docker daemon, buildah, base images."""
