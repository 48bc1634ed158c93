"""What a build did: its log, progress, report and record."""
