"""Events, verdict and masked output of a node."""
