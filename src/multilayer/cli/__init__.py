"""The command line `mlp`: parse the arguments, call a function of the package, print the result. One file per command.

Computations belong in the package that a command calls. HTML pages belong in `pages`.
"""
