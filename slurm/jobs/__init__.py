"""Jobs as seen from the submit host: check, doctor, explain, records."""
