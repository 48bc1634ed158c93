"""The life of a node, as the head or as a worker."""
