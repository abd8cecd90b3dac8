"""Foundations without knowledge of networks: random numbers, counts that remember their formula, sparse rows, canonical
JSON, atomic files, the safetensors file format, options by name, and measurements of the machine.

What networks are made of belongs in `nn`; run folders in `runs`."""
