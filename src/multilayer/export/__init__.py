"""Export trained models to other formats, one file per format.

The model file of this package belongs in `core`. Pictures belong in `drawing`.
"""
