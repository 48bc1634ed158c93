"""Child processes and signs of life."""
