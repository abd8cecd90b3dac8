"""Foundations without knowledge of networks: random numbers, counts that remember their formula, sparse rows, canonical
JSON, atomic files, the safetensors file format, options by name, and measurements of the machine.

Layers, activations and losses belong in `nn`. Run folders belong in `runs`."""
