"""Python side of the pages: data in, one HTML file out. The pages themselves are built from `frontend/`.

Pictures made by matplotlib belong in `drawing`.
"""
