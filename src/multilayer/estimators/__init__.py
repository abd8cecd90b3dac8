"""Estimators that follow scikit-learn's contract, `partial_fit`, and the search for options.

The recipe that chooses the default network belongs in `training`; reading tables in `data`. Nothing is imported here:
parts of the package need no scikit-learn.
"""
