"""Plots and pictures of networks with matplotlib (the extra `plot`).

HTML pages belong in `pages`. Text drawings for the terminal belong in `cli`.
"""
