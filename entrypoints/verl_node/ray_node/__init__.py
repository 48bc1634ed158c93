"""Ray on one node: its flags, environment, processes and driver."""
