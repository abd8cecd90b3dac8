"""The report of a run: its figures as plain data, and as a page."""
