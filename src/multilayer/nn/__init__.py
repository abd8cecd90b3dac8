"""What networks are made of, in numpy only: layers, activations, losses, optimizers, schedules, calibration.

A whole network is a `spec.Spec`; the torch module of a layer belongs in `pytorch`.
"""
