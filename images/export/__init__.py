"""Export of images: docker-archive, oci-archive, squashfs."""
