"""Which images exist, and whether one of them can work."""
