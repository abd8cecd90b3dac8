"""The building blocks of networks, in numpy only: layers, activations, losses, optimizers, schedules, calibration.

A whole network is a `spec.Spec`. The torch module of a layer belongs in `pytorch`.
"""
