"""The command line: parse, call, print. One file per command; `main` joins them.

Computations of a command belong in the package that it calls. HTML pages belong in `pages`.
"""
