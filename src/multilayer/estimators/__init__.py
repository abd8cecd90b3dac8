"""Estimators with the scikit-learn interface, `partial_fit`, and hyperparameter search.

The recipe that chooses the default network belongs in `training`. Reading tables belongs in `data`. This file imports
nothing, because some modules of this package do not need scikit-learn.
"""
