"""Trained models in formats that others run, a file per format."""
