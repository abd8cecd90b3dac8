"""Trained models in formats that others run, a file per format.

The format of our own model file belongs in `core`; pictures in `drawing`.
"""
