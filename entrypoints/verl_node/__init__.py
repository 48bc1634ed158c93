"""What runs on every node of a job: starts Ray, checks the cluster, prepares, trains, and says how it ended."""
