"""The command line: parse, call, print. One file per command; `main` joins them."""
