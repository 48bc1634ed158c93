"""Reading logs: lines, tracebacks, the first failure."""
