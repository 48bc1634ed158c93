"""What an image holds: files, packages, layers."""
