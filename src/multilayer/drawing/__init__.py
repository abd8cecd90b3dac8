"""Plots and pictures of networks, drawn with matplotlib (the extra `plot`).

HTML pages belong in `pages`; drawings made of characters in `cli`."""
