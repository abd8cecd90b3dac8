"""The report of a run, as plain data and as an HTML page."""
