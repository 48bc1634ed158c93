"""GPUs of a node, by platform."""
