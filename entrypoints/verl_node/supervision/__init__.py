"""Child processes, heartbeats, leases, hangs."""
