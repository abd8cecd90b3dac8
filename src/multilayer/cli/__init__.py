"""The command line: parse, call, print. One file per command; `main` joins them.

What a command computes belongs in the package that it calls; pages that a browser shows in `pages`.
"""
