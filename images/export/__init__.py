"""An image as files that other tools take."""
