"""Build context, Dockerfile templates, verl from a checkout, build plan, key of a build's inputs."""
