"""Jobs and the rehearsal cluster (host Python)."""
