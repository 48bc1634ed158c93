"""Files, packages and layers of an image; differences of two images."""
