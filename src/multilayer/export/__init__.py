"""Export of trained models to other formats, one file per format.

The format of our own model file belongs in `core`. Pictures belong in `drawing`.
"""
