"""The network of the tabular recipe (`contest.RECIPE`), written by hand in PyTorch. It is one of the peers.

It has periodic embeddings of numbers (Holzmüller et al. 2024), one-hot or learned categories, a learned scale, and
three layers of 256 units with per-unit blended SELU and dropout.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

NUMBERS, FREQUENCIES, D = 14, 16, 4
CATEGORIES = (2, 2, 3, 5, 8, 12, 20, 40)
WIDTHS = (256, 256, 256, 2)


def one_hot(n: int) -> Tensor:
    """Return a row for each code; the row of code 0 is zero. Two values are encoded as −1 and 1 in one column."""
    if n == 2:
        return torch.tensor([[0.0], [-1.0], [1.0]])
    return torch.cat([torch.zeros(1, n), torch.eye(n)])


class Recipe(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frequency = nn.Parameter(0.1 * torch.randn(NUMBERS, FREQUENCIES))
        self.phase = nn.Parameter(math.pi * (2 * torch.rand(NUMBERS, FREQUENCIES) - 1))
        self.weight = nn.Parameter(torch.randn(NUMBERS, FREQUENCIES, D - 1) / 4)
        self.bias = nn.Parameter(torch.zeros(NUMBERS, D - 1))
        for i, n in enumerate(CATEGORIES):
            if n <= 8:
                self.register_buffer(f"table{i}", one_hot(n))
            else:
                self.register_parameter(f"table{i}", nn.Parameter(torch.randn(n + 1, 8)))
        self.width = NUMBERS * D + sum(getattr(self, f"table{i}").shape[1] for i in range(len(CATEGORIES)))
        self.scale = nn.Parameter(torch.ones(self.width))
        sizes = (self.width, *WIDTHS)
        self.linears = nn.ModuleList(nn.Linear(i, o) for i, o in itertools.pairwise(sizes))
        for linear in self.linears:
            nn.init.normal_(linear.weight)
        self.blends = nn.ParameterList(torch.ones(width) for width in WIDTHS[:-1])

    def forward(self, x: Tensor, codes: Tensor) -> Tensor:
        v = torch.cos(2 * math.pi * x[:, :, None] * self.frequency + self.phase)
        v = torch.baddbmm(self.bias[:, None], v.transpose(0, 1), self.weight).transpose(0, 1)
        v = torch.cat([x[:, :, None], v], dim=2).flatten(1)
        tables = [functional.embedding(codes[:, i], getattr(self, f"table{i}")) for i in range(len(CATEGORIES))]
        z = torch.cat([v, *tables], dim=1) * self.scale
        for i, linear in enumerate(self.linears):
            z = torch.addmm(linear.bias, z, linear.weight.T, alpha=1 / math.sqrt(linear.in_features))
            if i < len(self.blends):
                z = torch.lerp(z, functional.selu(z), self.blends[i])
                z = functional.dropout(z, 0.15, self.training)
        return z
