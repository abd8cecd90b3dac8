"""The options of `Config` that an engine depends on."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.formatting import listed
from ..core.options import SharedConfig, check_choice, check_not_negative, check_positive, check_readable, described
from ..errors import OptionError, option_name
from ..nn import optimizers
from ..spec.initialization import scheme

ENGINE_NAMES = ("auto", "fused", "numpy", "torch")
AVERAGE = 0.99
"""Default of `average`: an average over about 100 steps. In a run with few steps, it would still contain the initial
weights."""


@dataclass(frozen=True, kw_only=True)
class EngineConfig(SharedConfig):
    """The options of `Config` that the engine and its updates depend on."""

    engine: str = described("auto", f"Engine that runs the steps: {listed(ENGINE_NAMES)}.")
    optimizer: str = described(
        "adamw", "Optimizer: sgd, momentum, nesterov, adam or adamw. Constants in parentheses: adam(beta2=0.95)."
    )
    l2: float = described(0.0, "L2 penalty on weight matrices.")
    clip_norm: float | None = described(None, "Clip the gradient to this norm.")
    clip_value: float | None = described(None, "Clip each value of the gradient to ± this number.")
    average: float | None = described(
        None,
        f"Decay β of the exponential moving average of the weights; auto is {AVERAGE}, or none if epochs is set.",
        auto=True,
    )
    init: str = described(
        "auto", "Initialization: auto, he, xavier, orthogonal, …; data adapts the weights to the training rows."
    )
    device: str = described("auto", "Device: auto, cpu or cuda.")
    compile: bool = described(False, "Use torch.compile.")
    threads: int | None = described(
        None, "Number of threads; auto is 1 if steps are small, otherwise one per core.", auto=True
    )
    statistics_every: int | None = described(
        None, "Steps between events with the norm of every parameter and its gradient."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "engine", ENGINE_NAMES)
        check_readable(self, "optimizer", optimizers.get)
        check_positive(self, "clip_norm", "clip_value", "threads", "statistics_every")
        check_not_negative(self, "l2")
        if self.average is not None and not 0 <= self.average < 1:
            raise OptionError(f"{option_name('average')} must be at least 0 and below 1, got {self.average!r}")
        if self.init != "data":
            check_readable(self, "init", scheme)
