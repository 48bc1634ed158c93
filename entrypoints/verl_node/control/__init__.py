"""The control channel: the workers' connections to the head, from before Ray starts until the job's end."""
