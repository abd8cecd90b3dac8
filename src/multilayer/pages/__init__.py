"""The explorer and the report: insert data into an HTML template. The templates are built from `frontend/`.

Figures with matplotlib belong in `drawing`.
"""
