"""Trained models: load, predict and evaluate them, without PyTorch.

Training belongs in `training`; other file formats in `export`."""
