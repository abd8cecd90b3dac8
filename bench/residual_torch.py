"""The network `residual_mlp(20, 10, hidden=128, blocks=4)` in PyTorch. It is one of the peers."""

from __future__ import annotations

from torch import Tensor, nn


class Residual(nn.Module):
    def __init__(self, hidden: int = 128, blocks: int = 4) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(20, hidden), nn.Linear(hidden, 10)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(hidden),
                nn.Linear(hidden, 4 * hidden),
                nn.GELU(),
                nn.Dropout(0.1),
                nn.Linear(4 * hidden, hidden),
            )
            for _ in range(blocks)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)
