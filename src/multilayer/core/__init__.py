"""Foundations that do not depend on networks: random numbers, integers with formulas, sparse rows, canonical JSON,
atomic files, the format of model files, options by name, and measurements of the machine.

Layers, activations and losses belong in `nn`. Run folders belong in `runs`.
"""
