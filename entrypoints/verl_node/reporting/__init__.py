"""What a node writes: events, verdict, masked output."""
