"""Python side of the pages: data in, one HTML file out. The pages themselves are built from `frontend/`.

Figures drawn with matplotlib belong in `drawing`.
"""
