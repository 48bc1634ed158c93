"""The build context of an image, and the key of its inputs."""
