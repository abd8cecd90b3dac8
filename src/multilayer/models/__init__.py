"""Trained models: load, predict and evaluate them, without PyTorch.

Training belongs in `training`. Other file formats belong in `export`."""
