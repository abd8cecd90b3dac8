"""Trained models as ONNX files, with the preprocessing of the table inside."""
