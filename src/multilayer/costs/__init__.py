"""Exact cost of a network, without running it.

| module | content |
|---|---|
| `count` | the cost of a training step |
| `flops` | FLOPs per layer |
| `memory` | bytes of a step |
| `formulas` | the formula of each number |
| `inverse` | the largest batch, network or time within a limit |
| `roofline` | predicted time of a step |
| `transformer` | a feed-forward block and the attention of the same layer |
| `summary` | layers with parameters and FLOPs, repeated layers merged |
| `budget` | limits for continuous integration |
| `tool_comparison` | what other tools report |
| `html` | a cost as an HTML page, and tables for notebooks |
| `verification`, `torch_speed` | comparison with PyTorch: counts and times |

Printed tables belong in `cli`, and measurements of the machine in `core`.
"""

from __future__ import annotations

from .count import DTYPES, Cost, Row, cost, options_of_run
from .transformer import TransformerContext, transformer_context

__all__ = ["DTYPES", "Cost", "Row", "TransformerContext", "cost", "options_of_run", "transformer_context"]
