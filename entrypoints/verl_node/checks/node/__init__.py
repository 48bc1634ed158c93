"""The checks of one node, a module a matter."""
