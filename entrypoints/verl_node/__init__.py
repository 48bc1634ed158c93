"""The process on every node of a job: starts Ray, checks the cluster, prepares, trains, writes a verdict."""
