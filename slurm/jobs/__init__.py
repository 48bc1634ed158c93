"""Commands for jobs on the submit host: check, doctor, explain."""
